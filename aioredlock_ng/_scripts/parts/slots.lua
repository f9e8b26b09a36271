-- What is under the key of a semaphore: a hash of slots, from 0 on, each with the moment in ms until which its owner has
-- it, of 13 digits, a colon and the owner value (R24).  Returns nil where that is another program's hash: it has entries of
-- another form.  Else of the slots that are held the end and what is there, by their numbers; and the fields that have
-- ended.
local function slots_at(key, ms)
  local all = redis.call('HGETALL', key)
  local ends, values, ended = {}, {}, {}
  for i = 1, #all, 2 do
    local slot, value = tonumber(all[i]), all[i + 1]
    local till = string.byte(value, 14) == 58 and tonumber(string.sub(value, 1, 13))
    if not slot or not till then
      return nil
    elseif till < ms then
      ended[#ended + 1] = all[i]
    else
      ends[slot], values[slot] = till, value
    end
  end
  return ends, values, ended
end
-- Whether a slot with that value is the owner's; no text is cut out for it, since this is asked for each slot.
local function owns(owner, value)
  return value and #value == #owner + 14 and string.find(value, owner, 15, true) == 15
end
-- For how many ms all slots are taken yet, at least 1; 0: one is free.
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
-- Have the owner's slots but for `kept` among those that are to be dropped; returns how many they are.
local function strays(ends, values, owner, kept, dropped)
  local found = 0
  for slot, value in pairs(values) do
    if slot ~= kept and owns(owner, value) then
      found = found + 1
      dropped[#dropped + 1] = slot
      ends[slot], values[slot] = nil, nil
    end
  end
  return found
end
