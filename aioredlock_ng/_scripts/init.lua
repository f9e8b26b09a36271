-- Somebody states that no lock can be alive: the node may vote at once, above all fences so far (R12).
-- KEYS[1]  the sentinel
-- ARGV[1]  how many nodes there are
-- ARGV[2]  the quarantine from now on, milliseconds
-- ARGV[3]  0: choose a floor.  Else the floor of all nodes; none is taken that is too far ahead of this clock
-- returns  the sentinel; one of another format is left as it is
local us, ms = clock()
local me, own = identity(), (ms + 12000) * 1024 + us % 1000
local stored = redis.call('GET', KEYS[1])
local who, floor = string.match(stored or '', '^1:([^:]*):(%d+):%d+:%d+:%d+$')
if stored and not who then
  return stored
end
local asked = tonumber(ARGV[3])
if asked == 0 or who ~= me then
  asked = own
end
floor = math.max(math.min(asked, own), tonumber(floor) or 0)
local value = string.format('1:%s:%.0f:0:%s:%s', me, floor, ARGV[1], ARGV[2])
redis.call('SET', KEYS[1], value)
return value
