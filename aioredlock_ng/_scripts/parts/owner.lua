-- Whether there are readers under a key: they are in the way of a mutex (R19).
local function has_readers(key)
  return type(redis.pcall('ZSCORE', key, '')) ~= 'table'
end
-- The owner value under a lock's key; false where there is none; 'readers', which no owner value is, for readers; or the
-- error of another type.
local function owner_at(key)
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' and string.find(holder.err, 'WRONGTYPE', 1, true) and has_readers(key) then
    return 'readers'
  end
  return holder
end
