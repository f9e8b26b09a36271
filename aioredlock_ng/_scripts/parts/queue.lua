-- The hints beside a read-write lock, never read for safety (R22): a sorted set of marks, each with the moment in ms at
-- which it ends.  'w' and a seat: a writer waits.  'r': readers wait.  'turn': readers come first; it waits for the first
-- of them, which may be far away, and gives the others a moment more.  What cannot be read is no mark.
-- In ms: how long a mark of those that wait stands, a turn without a reader yet, and a turn with one.
local MARK, AWAITED, TURN = 1000, 250, 25
local function mark(queue, what, ms, span)
  redis.call('ZADD', queue, ms + span, what)
  redis.call('ZREMRANGEBYSCORE', queue, '-inf', ms - 1)  -- those of calls that have died
  if redis.call('PTTL', queue) < span then
    redis.call('PEXPIRE', queue, span)
  end
end
-- For how long a mark stands yet; 0: it does not.
local function marked(queue, what, ms)
  local ends = redis.pcall('ZSCORE', queue, what)
  ends = type(ends) == 'string' and tonumber(ends) or 0
  return ends >= ms and ends - ms + 1 or 0
end
-- For how long a waiting writer keeps new readers out; 0: none does.
local function kept_out(queue, ms)
  if marked(queue, 'turn', ms) > 0 then
    return 0
  end
  local last = redis.pcall('ZREVRANGE', queue, 0, 1, 'WITHSCORES')
  for i = 1, #last, 2 do  -- of those that end last; no turn stands, so that one of two is a writer's, if any is
    local ends = tonumber(last[i + 1])
    if string.sub(last[i], 1, 1) == 'w' and ends >= ms then
      return ends - ms + 1
    end
  end
  return 0
end
-- A reader has come, perhaps the first one in its turn: the others are near.
local function take_turn(queue, ms)
  if marked(queue, 'turn', ms) > TURN + 1 then
    mark(queue, 'turn', ms, TURN)
  end
end
-- A writer has gone: the readers that wait come before the next writer, if any wait.  What fails here does not keep a
-- lock from its release.
local function give_turn(queue)
  if redis.call('PTTL', queue) > 0 then
    local _, ms = clock()
    if marked(queue, 'r', ms) > 0 then
      redis.pcall('ZREM', queue, 'r')
      pcall(mark, queue, 'turn', ms, AWAITED)
    end
  end
end
