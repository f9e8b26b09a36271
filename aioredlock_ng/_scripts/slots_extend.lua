-- The owner has its slot for at least ttl from now, and no other one.  Never creates, never shortens (R8, R25).
-- KEYS     the lock; with a fence its counters; where votes rest on it the sentinel
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long counters live unused, milliseconds
-- ARGV[5]  the slot
-- ARGV[6]  the sentinel that the client expects; these three are left out where there are no sentinels
-- ARGV[7]  the floor in it
-- ARGV[8]  this server's identity, or empty
-- ARGV[#ARGV]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}, as extend.lua.
local key, owner, fence, slot, vote, floor = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5]), 0, 0
local _, ms = clock()
if #ARGV > 6 then
  if sentinel_matches(KEYS[#KEYS], ARGV[6], ARGV[8]) then
    floor = tonumber(ARGV[7])
  else
    vote = 10
  end
end
local ends, dropped, mine = slots_at(key, ms, owner)
if not ends then
  return {ARGV[#ARGV], vote - 1}
end
strays(ends, mine, slot, dropped)
dropped[#dropped + 1] = ''  -- after a first write, though of nothing, a server without memory allows more
drop(key, dropped)
if not mine[slot] then
  return {ARGV[#ARGV], ends[slot] and vote - 1 or vote}
end
take_slot(key, slot, math.max(ends[slot], ms + ARGV[2]), owner, ARGV[2])
if fence > 0 then
  raise_slot(KEYS[2], slot, fence, floor, ms, ARGV[4])
end
return {ARGV[#ARGV], vote + 1}
