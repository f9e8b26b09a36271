-- One permit of a semaphore: a slot of its own, with a fence (R24, R25).
-- KEYS     the lock; with fences its counters; with a quarantine the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  ballot: the fence that the client proposes; 0 without fences
-- ARGV[4]  1: permits have no fence ranges
-- ARGV[5]  how long counters live unused, milliseconds
-- ARGV[6]  how many slots there are
-- ARGV[7]  the first slot to try
-- ARGV[8]  how many slots to try from there on: the first one that is free is taken
-- ARGV[9]  the record that the client expects; both are left out where there are none
-- ARGV[10] the floor in it
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, 1, fence, µs, slot}: ours.  {id, 0, wait, µs, -1}: none of the tried slots is free; wait is the
--          milliseconds until any slot is free, 0: one is now, -1: never, since another program's hash is there.
--          {id, -1, 0, µs, -1}: this node has no vote.  µs is its time of day.
local us, ms = clock()
local key, owner, ballot, permits, floor = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6]), 0
if #ARGV > 9 then
  if not incarnation_matches(KEYS[#KEYS], ARGV[9]) then
    return {ARGV[#ARGV], -1, 0, us, -1}
  end
  floor = tonumber(ARGV[10])
end
local ends, ended, mine = slots_at(key, ms, owner)
if not ends then
  return {ARGV[#ARGV], 0, redis.call('PTTL', key), us, -1}
end
local slot = nil
for held in pairs(mine) do  -- a repeated command has its slot already
  slot = math.min(slot or held, held)
end
local start = tonumber(ARGV[7])
for i = start, slot and -1 or start + ARGV[8] - 1 do
  local next_one = i % permits
  if not ends[next_one] then
    slot = next_one
    break
  end
end
if not slot then
  return {ARGV[#ARGV], 0, all_taken(ends, permits, ms), us, -1}
end
local field = tostring(slot)  -- each command would take longer to write a number as text
local stored = ballot > 0 and redis.call('HGET', KEYS[2], field)
local fence = ballot > 0 and reading(stored, floor, ms) or 0
if not mine[slot] then
  drop(key, ended)
  take_slot(key, field, ms + ARGV[2], owner, ARGV[2])
  if ballot > 0 then
    fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)))
    slot_stand(KEYS[2], field, stored, fence == ballot and ARGV[3] or fence, ms, ARGV[5])
  end
end
return {ARGV[#ARGV], 1, fence, us, slot}
