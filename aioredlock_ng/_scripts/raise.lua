-- The owner lifts its counters to one fence, so that the nodes agree on it (R10).
-- KEYS     n locks, their n counters, the sentinel
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  the sentinel that the client expects
-- ARGV[5]  the floor in it
-- ARGV[6]  this server's identity, or empty
-- ARGV[7]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}.  1: all are ours and stand at the fence.  0: something is not ours.  -1: this node has no
--          vote.  -2: the fence is too far ahead of this node's clock.  -3: a counter is above it.
if not sentinel_matches(KEYS[#KEYS], ARGV[4], ARGV[6]) then
  return {ARGV[7], -1}
end
local n, fence = (#KEYS - 1) / 2, tonumber(ARGV[2])
local _, ms = clock()
for i = 1, n do
  local holder = owner_at(KEYS[i])
  if type(holder) == 'table' then
    return holder
  elseif holder ~= ARGV[1] then
    return {ARGV[7], 0}
  end
end
if fence > (ms + 10000) * 1024 then
  return {ARGV[7], -2}
end
return {ARGV[7], raise_all(n, fence, tonumber(ARGV[5]), ms, ARGV[3]) and 1 or -3}
