-- The key of a semaphore holds a hash of slots, from 0 on, each with the moment in ms until which its owner has it, in 13
-- digits, a colon and the owner value (R24).  Returns nil for another program's hash, which has entries of another form,
-- and for slots that are held by another kind of lock, which owner values tell by their letter (R19).  Else returns the
-- ends of the slots that are held, by their numbers; the fields that have ended; and the set of the owner's slots.
local function slots_at(key, ms, owner)
  local all = redis.call('HGETALL', key)
  local ends, ended, mine, size = {}, {}, {}, #owner + 14
  local number, byte, sub, find = tonumber, string.byte, string.sub, string.find  -- this is asked for each slot
  local kind = find(owner, '^%x+:%d+%l:') and byte(owner, 55)
  for i = 1, #all, 2 do
    local slot, value = number(all[i]), all[i + 1]
    local till = byte(value, 14) == 58 and number(sub(value, 1, 13))
    if not slot or not till then
      return nil
    elseif till < ms then
      ended[#ended + 1] = all[i]
    elseif kind and byte(value, 69) ~= kind then
      return nil
    else
      ends[slot] = till
      if #value == size and find(value, owner, 15, true) then  -- no text is cut out for it
        mine[slot] = true
      end
    end
  end
  return ends, ended, mine
end
-- How many ms all slots are still taken, at least 1; 0: one is free.
local function all_taken(ends, permits, ms)
  local first = nil
  for slot = 0, permits - 1 do
    if not ends[slot] then
      return 0
    end
    first = math.min(first or ends[slot], ends[slot])
  end
  return first - ms + 1
end
-- Drop slots; the key ends with the last of them.
local function drop(key, slots)
  if #slots > 0 then
    redis.call('HDEL', key, unpack(slots))
  end
end
-- Add the owner's slots except `kept` to those that are to be dropped; returns how many there are.
local function orphaned(ends, mine, kept, dropped)
  local found = 0
  for slot in pairs(mine) do
    if slot ~= kept then
      found = found + 1
      dropped[#dropped + 1] = slot
      ends[slot] = nil
    end
  end
  return found
end
-- Set a slot for the owner until `till`.
local function take_slot(key, slot, till, owner, ttl)
  redis.call('HSET', key, slot, till .. ':' .. owner)
  prolong(key, ttl)
end
-- The counters of a semaphore, one for each slot, in a hash that lives as long as any of them needs (R11, R25).
-- Set a counter to a value; `stored` is its value now.
local function slot_stand(counters, slot, stored, value, ms, keep_ms)
  if tonumber(stored) ~= value then
    redis.call('HSET', counters, slot, value)
  end
  prolong(counters, kept(value, ms, keep_ms))
end
-- Raise the counter of a slot that is ours to its fence (R10); false when it is not at the fence then.
local function raise_slot(counters, slot, fence, floor, ms, keep_ms)
  local stored = redis.call('HGET', counters, slot)
  local before = reading(stored, floor, ms)
  if before < fence and fence > (ms + 10000) * 1024 then
    prolong(counters, kept(before, ms, keep_ms))  -- too far ahead of this node's clock
    return false
  end
  slot_stand(counters, slot, stored, math.max(before, fence), ms, keep_ms)
  return before <= fence
end
-- The functions of a kind for raise.lua, extend.lua and repair.lua: the owner of a slot, which has no other slot (R25).
local OWN, BESIDE = 1, 0
local function holding(key, owner, ms, slot, tidies)
  local ends, dropped, mine = slots_at(key, ms, owner)
  if not ends then
    return -1
  end
  slot = tonumber(slot)
  if tidies then
    orphaned(ends, mine, slot, dropped)
    drop(key, dropped)
  end
  return mine[slot] and 1 or ends[slot] and -1 or 0, ends[slot]
end
local function lengthen(key, owner, ttl, ms, slot, till)
  redis.call('HDEL', key, '')  -- after a write, even one that changes nothing, a server at its maxmemory allows more
  take_slot(key, slot, math.max(till, ms + ttl), owner, ttl)
end
local function restore(key, owner, ttl, ms, slot)
  take_slot(key, slot, ms + ttl, owner, ttl)
end
local function raise_counters(_, fence, floor, ms, keep_ms, slot)
  return raise_slot(KEYS[2], slot, fence, floor, ms, keep_ms)
end
