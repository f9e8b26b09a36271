-- If all names are ours, each lives at least ttl from now; in mode read a writer's own key becomes a reader's: the
-- downgrade (R23).  Never creates, never shortens (R8).  One script for each kind, by its part: mutex, readers, slots.
-- KEYS     n locks; with a fence their n counters; of readers and writers n queues; with a quarantine the incarnation
--          record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the kind's own argument, if it has one: of readers and writers the mode, read or write; of slots the slot
-- behind   the record that the client expects, the floor in it; both are left out without a quarantine.  The id of
--          this request, with which the answer begins (R15)
-- returns  {id, n}.  1: extended.  0: a name is free, the others are ours.  -1: a name is another owner's.
--          10 more: the same, but this node has no vote (R12).
local n, owner, ttl, fence, own, vote, floor = #KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], 0, 0
local _, ms = clock()
if #ARGV > OWN + 5 then
  if incarnation_matches(KEYS[n], ARGV[OWN + 5]) then
    floor = tonumber(ARGV[OWN + 6])
  else
    vote = 10
  end
  n = n - 1
end
n = n / (1 + BESIDE + math.min(fence, 1))
-- Check all names before any is changed.
local missing, tills, beside = false, {}, fence > 0 and 2 * n or n
for i = 1, n do
  local found, till = holding(KEYS[i], owner, ms, own, true)
  if type(found) == 'table' then
    return found
  elseif found == -1 then
    return {ARGV[#ARGV], vote - 1}
  end
  missing, tills[i] = missing or found == 0, till
end
if missing then
  return {ARGV[#ARGV], vote}
end
for i = 1, n do
  lengthen(KEYS[i], owner, ttl, ms, own, tills[i], KEYS[beside + i])
end
if fence > 0 then
  raise_counters(n, fence, floor, ms, ARGV[4], own)
end
return {ARGV[#ARGV], vote + 1}
