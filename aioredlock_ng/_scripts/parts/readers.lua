-- What is under the key of a read-write lock: the owner value of a writer; or a sorted set of readers, each with the
-- moment in ms until which it reads (R20).  The key ends with the last of them: where there is a set, one reads.
-- Until when owner reads; nil where it does not.
local function reads_until(key, owner, ms)
  local ends = redis.pcall('ZSCORE', key, owner)  -- an error where a writer is
  ends = type(ends) == 'string' and tonumber(ends)
  return ends and ends >= ms and ends or nil
end
