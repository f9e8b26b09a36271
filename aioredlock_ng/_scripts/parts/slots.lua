-- What is under the key of a semaphore: a hash of slots, from 0 on, each with the moment in ms until which its owner has
-- it, a colon and the owner value (R24).  Returns nil where that is another program's hash: it has no expiry, or entries of
-- another form.  Else of the slots that are held the end and the owner, by their numbers; and what has ended.
local function slots_at(key, ms)
  local all = redis.call('HGETALL', key)
  local ends, owners, ended = {}, {}, {}
  if #all > 0 and redis.call('PTTL', key) == -1 then
    return nil
  end
  for i = 1, #all, 2 do
    local slot = tonumber(all[i])
    local till, owner = string.match(all[i + 1], '^(%d+):(.*)$')
    if not slot or not till then
      return nil
    elseif tonumber(till) < ms then
      ended[#ended + 1] = all[i]
    else
      ends[slot], owners[slot] = tonumber(till), owner
    end
  end
  return ends, owners, ended
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
local function strays(ends, owners, owner, kept, dropped)
  local found = 0
  for slot, holder in pairs(owners) do
    if holder == owner and slot ~= kept then
      found = found + 1
      dropped[#dropped + 1] = slot
      ends[slot], owners[slot] = nil, nil
    end
  end
  return found
end
