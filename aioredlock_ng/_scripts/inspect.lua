-- The holders of locks, how long their keys still live, and the values of their counters.
-- KEYS     each lock, and its counter
-- ARGV[1]  size of the answer in bytes, roughly: once it is reached, the remaining locks are left out
-- ARGV[2]  the id of this request, with which the answer begins (R15)
-- returns  {id, value, ms, count, …}: three for each lock, in the order of KEYS; the first lock is never left out.
--          value is false when the lock is free; ms is -1 when there is no expiry.  count is the counter's value, false
--          where there is none, and where there is neither a holder nor a reader (R10): slots have counters of their
--          own (R25).
--          A value that is too long to be ours is cut: it could be of any size.
--          For readers the value is {owner, ms, …}: those that end last, each with its ms left; one more than are shown,
--          which says that there are more.
--          For a semaphore's slots the value is {slot, owner, ms, …}, by the slots' numbers.
--          For anything else the value is {error}, the plain WRONGTYPE error.  redis.call would wrap it in a text that
--          differs from server to server, and would end the script without an answer for the other locks.
local MOST, ENTRY = 101, 16
local room = tonumber(ARGV[1])
-- An owner value, cut; it takes its part of the room.
local function shown(owner)
  owner = string.sub(owner, 1, 1024)
  room = room - #owner - ENTRY
  return owner
end
-- The slots under a key; nil where there are none.
local function slots_of(key)
  local _, ms = clock()
  local is_hash, ends = pcall(slots_at, key, ms, '')
  if not (is_hash and ends) then
    return nil
  end
  local found, slots = {}, {}
  for slot in pairs(ends) do
    found[#found + 1] = slot
  end
  table.sort(found)
  for i, slot in ipairs(found) do
    local held = redis.call('HGET', key, slot) or ''
    slots[3 * i - 2], slots[3 * i - 1], slots[3 * i] = slot, shown(string.sub(held, 15)), ends[slot] - ms + 1
  end
  return slots
end
-- The readers under a key.
local function readers_of(key)
  local _, ms = clock()
  local last, readers = redis.call('ZREVRANGE', key, 0, MOST - 1, 'WITHSCORES'), {}
  for i = 1, #last, 2 do
    if tonumber(last[i + 1]) >= ms then
      readers[#readers + 1] = shown(last[i])
      readers[#readers + 1] = tonumber(last[i + 1]) - ms + 1
    end
  end
  return readers
end
-- The value of a counter; false where it cannot be a number.
local function count_of(counter)
  local stored = redis.pcall('GET', counter)
  return type(stored) == 'string' and #stored <= 16 and stored
end
local answer = {ARGV[2]}
for i = 1, #KEYS, 2 do
  local key, count = KEYS[i], false
  local value = owner_at(key)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      return value  -- it is refused: so are all the others
    end
    value = slots_of(key) or {value.err}
  elseif value == 'readers' and redis.pcall('GET', key) ~= value then
    value, count = readers_of(key), count_of(KEYS[i + 1])
  elseif value then
    value, count = shown(value), count_of(KEYS[i + 1])
  end
  room = room - ENTRY
  local last = #answer
  answer[last + 1], answer[last + 2], answer[last + 3] = value, redis.call('PTTL', key), count
  if room <= 0 then
    break
  end
end
return answer
