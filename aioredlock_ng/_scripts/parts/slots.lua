-- What is under the key of a semaphore: a hash of slots, from 0 on, each with the moment in ms until which its owner has
-- it, of 13 digits, a colon and the owner value (R24).  Returns nil where that is another program's hash: it has entries of
-- another form.  Else the ends of the slots that are held, by their numbers; the fields that have ended; and which of the
-- slots are the owner's.
local function slots_at(key, ms, owner)
  local all = redis.call('HGETALL', key)
  local ends, ended, mine, size = {}, {}, {}, #owner + 14
  local number, byte, sub, find = tonumber, string.byte, string.sub, string.find  -- this is asked for each slot
  for i = 1, #all, 2 do
    local slot, value = number(all[i]), all[i + 1]
    local till = byte(value, 14) == 58 and number(sub(value, 1, 13))
    if not slot or not till then
      return nil
    elseif till < ms then
      ended[#ended + 1] = all[i]
    else
      ends[slot] = till
      if #value == size and find(value, owner, 15, true) then  -- no text is cut out for it
        mine[slot] = true
      end
    end
  end
  return ends, ended, mine
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
local function strays(ends, mine, kept, dropped)
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
