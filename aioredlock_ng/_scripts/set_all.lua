-- Several names at once, all or nothing, without a fence (for one name that is SET NX PX).
-- KEYS     the locks
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- returns  0: all set.  n > 0: taken, the longest of the keys in the way has n ms left.
--          -1: taken by a key without expiry.
local wait = 0
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left == -1 then
    wait = -1
  elseif left >= 0 and wait >= 0 then
    wait = math.max(wait, left, 1)
  end
end
if wait ~= 0 then
  return wait
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return 0
