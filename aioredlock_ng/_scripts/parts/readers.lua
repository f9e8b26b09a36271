-- The key of a read-write lock holds the owner value of a writer; or a sorted set of readers, each with the moment in ms
-- until which it reads (R20).  The key ends with the last of them: where there is a set, one reads.
-- Until when the owner reads; nil where it does not.
local function reads_until(key, owner, ms)
  local ends = redis.pcall('ZSCORE', key, owner)  -- an error where a writer is
  ends = type(ends) == 'string' and tonumber(ends)
  return ends and ends >= ms and ends or nil
end
-- The longer of two spans in ms; -1 has no end.
local function longer(wait, other)
  return (wait == -1 or other == -1) and -1 or math.max(wait, other)
end
-- How many ms the value under a key stays in the way, at least 1; -1: for ever, 0: nothing is in the way.  The owner `mine`
-- is not, and readers are in the way of writers only, not of one that `reads`; but a set without expiry is another
-- program's.  The second value is whether `mine` is there.
local function taken(key, mine, reads)
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      redis.call('GET', key)  -- it is refused: the same error
    end
    redis.call('ZSCORE', key, '')  -- an error where no readers can be
  end
  if not holder or holder == mine then
    return 0, holder == mine
  end
  local left = redis.call('PTTL', key)
  if reads and type(holder) == 'table' and left ~= -1 then
    return 0, false
  end
  return left == -1 and -1 or math.max(left, 1), false
end
