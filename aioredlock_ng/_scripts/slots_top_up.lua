-- A node has what a majority has granted: the slot, if it is free here, and no other one (R9, R25); quarantined ones, too.
-- KEYS     the lock; with a fence its counters
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long counters live unused, milliseconds
-- ARGV[5]  the slot
-- ARGV[6]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, 0}: it is ours and lives at least ttl.  {tag, -1}: it is another's.
local key, owner, fence, slot = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local _, ms = clock()
local ends, dropped, mine = slots_at(key, ms, owner)
if not ends then
  return {ARGV[6], -1}
end
strays(ends, mine, slot, dropped)
drop(key, dropped)
if ends[slot] and not mine[slot] then
  return {ARGV[6], -1}
end
take_slot(key, slot, math.max(ends[slot] or 0, ms + ARGV[2]), owner, ARGV[2])
if fence > 0 then
  raise_slot(KEYS[2], slot, fence, 0, ms, ARGV[4])
end
return {ARGV[6], 0}
