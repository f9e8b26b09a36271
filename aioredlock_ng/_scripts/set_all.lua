-- Several names at once, all or nothing, without a fence (a single name needs only SET NX PX).
-- KEYS     n locks; with a quarantine the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  unused without a fence, as are the next two: see acquire.lua
-- ARGV[6]  the record that the client expects; both are left out where there are none
-- ARGV[7]  the floor in it
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, n}.  0: all set.  n > 0: taken; n is the greatest ms left of the keys in the way.
--          -1: taken by a key without expiry.  -2: this node has no vote (R12).
local n, wait = #KEYS, 0
if #ARGV > 6 then
  n = n - 1
  if not incarnation_matches(KEYS[#KEYS], ARGV[6]) then
    return {ARGV[#ARGV], -2}
  end
end
for i = 1, n do
  local key = KEYS[i]
  local left = redis.call('PTTL', key)
  if left == -1 then
    wait = -1
  elseif left >= 0 and wait >= 0 then
    wait = math.max(wait, left, 1)
  end
end
if wait ~= 0 then
  return {ARGV[#ARGV], wait}
end
for i = 1, n do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
end
return {ARGV[#ARGV], 0}
