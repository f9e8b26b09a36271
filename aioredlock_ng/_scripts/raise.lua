-- The owner raises its counters to one fence, so that the nodes agree on it (R10, R21, R25).  One script for each kind,
-- by its part: mutex, readers, slots.
-- KEYS     n locks, their n counters; of readers and writers n queues; the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  the kind's own argument, if it has one, as in extend.lua
-- behind   the record that the client expects, the floor in it; the id of this request, with which the answer begins
--          (R15)
-- returns  {id, n}, or the error where a lock's key is of another type.  1: all names are ours, and their counters at
--          the fence, or above it where other readers have raised a reader's.  0: a name is not ours.  -1: this node has no vote.  -2: the fence is too far ahead of
--          this node's clock.  -3: a counter is above it.
local id = ARGV[#ARGV]
if not incarnation_matches(KEYS[#KEYS], ARGV[OWN + 4]) then
  return {id, -1}
end
local n, owner, fence, own = (#KEYS - 1) / (2 + BESIDE), ARGV[1], tonumber(ARGV[2]), ARGV[4]
local _, ms = clock()
for i = 1, n do
  local found = holding(KEYS[i], owner, ms, own)
  if type(found) == 'table' then
    return found
  elseif found ~= 1 then
    return {id, 0}
  end
end
if fence > (ms + 10000) * 1024 then
  return {id, -2}
end
return {id, raise_counters(n, fence, tonumber(ARGV[OWN + 5]), ms, ARGV[3], own) and 1 or -3}
