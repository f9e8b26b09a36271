-- Release all slots of the owner, and return how long all slots stay taken (R6, R24).
-- KEYS     the lock; with a fence its counters
-- ARGV[1]  owner
-- ARGV[2]  the lease's fence, 0 without
-- ARGV[3]  how long counters live unused, milliseconds
-- ARGV[4]  empty: nothing is published; else on the channel of the key's name the number of its subscribers, if that may
--          be asked, a colon, and the slot that is free
-- ARGV[5]  how many slots there are
-- ARGV[6]  the slot of the lease; -1: it was not won
-- ARGV[7]  the id of this request, with which the answer begins (R15)
-- returns  {id, released, wait, reached}, as release.lua: wait is 0 where a slot is free.  Where another program's hash is
--          there, {id, 0, wait, reached, 1}.
local key, owner, fence, slot = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])
local _, ms = clock()
local loud = ARGV[4] ~= ''
local ends, dropped, mine = slots_at(key, ms, owner)
if not ends then
  return {ARGV[7], 0, redis.call('PTTL', key), loud and listeners(key) or 0, 1}
end
local given = orphaned(ends, mine, nil, dropped)
drop(key, dropped)
local reached = loud and (given > 0 and tell(key, ':' .. dropped[#dropped]) or listeners(key)) or 0
if mine[slot] and fence > 0 then  -- what fails here must not keep a slot from its release
  pcall(raise_slot, KEYS[2], slot, fence, 0, ms, ARGV[3])
end
return {ARGV[7], given, all_taken(ends, tonumber(ARGV[5]), ms), reached}
