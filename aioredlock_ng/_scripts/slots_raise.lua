-- The owner of a slot lifts its counter to one fence, so that the nodes agree on it (R10, R25).
-- KEYS     the lock, its counters, the sentinel
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  how long counters live unused, milliseconds
-- ARGV[4]  the slot
-- ARGV[5]  the sentinel that the client expects
-- ARGV[6]  the floor in it
-- ARGV[7]  this server's identity, or empty
-- ARGV[8]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}, as raise.lua.
if not sentinel_matches(KEYS[3], ARGV[5], ARGV[7]) then
  return {ARGV[8], -1}
end
local _, ms = clock()
local fence, slot = tonumber(ARGV[2]), tonumber(ARGV[4])
local ends, _, mine = slots_at(KEYS[1], ms, ARGV[1])
if not ends or not mine[slot] then
  return {ARGV[8], 0}
end
if fence > (ms + 10000) * 1024 then
  return {ARGV[8], -2}
end
return {ARGV[8], raise_slot(KEYS[2], slot, fence, tonumber(ARGV[6]), ms, ARGV[3]) and 1 or -3}
