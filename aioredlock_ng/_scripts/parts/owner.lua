-- Whether readers are under a key: no mutex, but in the way of one (R19).
local function has_readers(key)
  return type(redis.pcall('ZSCORE', key, '')) ~= 'table'
end
-- The owner value under a lock's key, false where there is none; for readers what no owner value is; or the error of
-- another type.
local function owner_at(key)
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' and string.find(holder.err, 'WRONGTYPE', 1, true) and has_readers(key) then
    return 'readers'
  end
  return holder
end
