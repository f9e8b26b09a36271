-- Somebody states that no lock can be alive: the node may vote at once, above all fences so far (R12).
-- KEYS[1]  the sentinel
-- ARGV[1]  how many nodes there are
-- ARGV[2]  the quarantine from now on, milliseconds
-- ARGV[3]  the floor of all nodes, at least
-- returns  the sentinel
local us, ms = clock()
local stored = redis.call('GET', KEYS[1])
local floor, span = string.match(stored or '', '^1:[^:]*:(%d+):%d+:%d+:(%d+)$')
floor = math.max((ms + 12000) * 1024 + us % 1000, tonumber(ARGV[3]), tonumber(floor) or 0)
span = math.max(tonumber(ARGV[2]), tonumber(span) or 0)
local value = string.format('1:%s:%.0f:0:%s:%.0f', identity(), floor, ARGV[1], span)
redis.call('SET', KEYS[1], value)
return value
