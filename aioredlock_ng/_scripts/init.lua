-- An operator states that no lock can be alive: the node may vote at once, above all earlier fences (R12).
-- KEYS[1]  the incarnation record
-- KEYS[2]  the members of the quorum: no lock of an earlier one can be alive (R12c)
-- ARGV[1]  how many nodes there are
-- ARGV[2]  the quarantine from now on, milliseconds
-- ARGV[3]  the label of the client, for the messages of other clients (R12a)
-- ARGV[4]  the id of this request, with which the answer begins (R15)
-- returns  {id, the incarnation record or empty}; a record of another format stays as it is
local us, ms = clock()
local stored = redis.call('GET', KEYS[1])
local server, floor = fields(stored or '')
if stored and not server then
  return {ARGV[4], stored}
end
floor = math.max(tonumber(floor) or 0, (ms + 12000) * 1024 + us % 1000)
local claim = string.format('%.0f:init:%s', ms, ARGV[3])
local value = string.format('1:%s:%.0f:0:%s:%s:%s', identity(), floor, ARGV[1], ARGV[2], claim)
redis.call('SET', KEYS[1], value)
redis.call('DEL', KEYS[2])
return {ARGV[4], value}
