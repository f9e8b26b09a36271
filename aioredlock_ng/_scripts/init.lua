-- An operator states that no lock can be alive: the node may vote at once, above all earlier fences (R12).
-- KEYS[1]  the incarnation record
-- KEYS[2]  the members of the quorum: no lock of an earlier one can be alive (R12c)
-- ARGV[1]  how many nodes there are
-- ARGV[2]  the quarantine from now on, milliseconds
-- ARGV[3]  0.  In the second round the greatest floor of all nodes, to which this one is lifted as far as its clock
--          allows; that round states nothing
-- ARGV[4]  the label of the client, for the messages of other clients (R12a)
-- ARGV[5]  the id of this request, with which the answer begins (R15)
-- returns  {id, the incarnation record or empty}; a record of another format stays as it is
local us, ms = clock()
local me, own, asked = identity(), (ms + 12000) * 1024 + us % 1000, tonumber(ARGV[3])
local stored = redis.call('GET', KEYS[1])
local server, floor, ready, size, span, claim = fields(stored or '')
if (stored and not server) or (asked > 0 and (server ~= me or size ~= ARGV[1])) then
  return {ARGV[5], stored or ''}
end
floor = tonumber(floor) or 0
if asked > 0 then
  floor = math.max(floor, math.min(asked, own))
else
  floor, ready, span = math.max(floor, own), '0', ARGV[2]
  claim = string.format('%.0f:init:%s', ms, ARGV[4])
end
local value = string.format('1:%s:%.0f:%s:%s:%s:%s', me, floor, ready, ARGV[1], span, claim)
redis.call('SET', KEYS[1], value)
if asked == 0 then
  redis.call('DEL', KEYS[2])
end
return {ARGV[5], value}
