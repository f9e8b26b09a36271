-- For how many ms what is under a key stays in the way, at least 1; -1: for ever, 0: nothing is.  The owner `mine` is not,
-- and readers are in the way of writers only, not of one that `reads`: a set without expiry is another program's.
-- Whether `mine` is there is the second value.
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
