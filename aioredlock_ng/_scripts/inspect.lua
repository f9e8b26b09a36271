-- The holders of a lock, and for how long its key is there yet.
-- KEYS[1]  the lock
-- ARGV[1]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, value, ms}: value is false when the lock is free; ms is -1 when there is no expiry.
--          Of a value that is too long to be ours, only the beginning: it could be of any size.
--          Where readers are, the value is {owner, ms, …}: those that end last, each with how long it reads yet; one
--          more than are shown, which tells that there are more.
--          The plain WRONGTYPE error where something else is: redis.call would wrap it in words that differ from
--          server to server.
--          Where a semaphore's slots are, the value is {slot, owner, ms, …}, by the slots' numbers.
local MOST = 101
local value = owner_at(KEYS[1])
if type(value) == 'table' then
  local _, ms = clock()
  local is_hash, ends = pcall(slots_at, KEYS[1], ms, '')
  if not (is_hash and ends) then
    return value
  end
  local found = {}
  for slot in pairs(ends) do
    found[#found + 1] = slot
  end
  table.sort(found)
  local slots = {}
  for i, slot in ipairs(found) do
    local held = redis.call('HGET', KEYS[1], slot) or ''
    slots[3 * i - 2], slots[3 * i - 1], slots[3 * i] = slot, string.sub(held, 15, 1038), ends[slot] - ms + 1
  end
  return {ARGV[1], slots, redis.call('PTTL', KEYS[1])}
end
local left = redis.call('PTTL', KEYS[1])
if value ~= 'readers' or redis.pcall('GET', KEYS[1]) == value then
  return {ARGV[1], value and string.sub(value, 1, 1024), left}
end
local _, ms = clock()
local last, readers = redis.call('ZREVRANGE', KEYS[1], 0, MOST - 1, 'WITHSCORES'), {}
for i = 1, #last, 2 do
  if tonumber(last[i + 1]) >= ms then
    readers[#readers + 1] = string.sub(last[i], 1, 1024)
    readers[#readers + 1] = tonumber(last[i + 1]) - ms + 1
  end
end
return {ARGV[1], readers, left}
