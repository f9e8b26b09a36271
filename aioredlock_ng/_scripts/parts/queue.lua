-- The hints beside a read-write lock, never read for safety (R22): a sorted set of flags, each with the moment in ms at
-- which it ends.  'w' and a seat: a writer waits.  'r': readers wait.  'turn': a reader phase, in which readers come first;
-- it waits for the first of them, which may be far away, and gives the others a moment more.  A flag that cannot be read
-- counts as missing.
-- In ms: how long a waiting flag stands, a reader phase before its first reader, and a reader phase from then on.
local MARK, AWAITED, TURN = 1000, 250, 25
local function mark(queue, what, ms, span)
  redis.call('ZADD', queue, ms + span, what)
  redis.call('ZREMRANGEBYSCORE', queue, '-inf', ms - 1)  -- those of calls that have died
  if redis.call('PTTL', queue) < span then
    redis.call('PEXPIRE', queue, span)
  end
end
-- How many ms a flag still stands; 0: it does not.
local function marked(queue, what, ms)
  local ends = redis.pcall('ZSCORE', queue, what)
  ends = type(ends) == 'string' and tonumber(ends) or 0
  return ends >= ms and ends - ms + 1 or 0
end
-- How many ms a waiting writer still keeps new readers out; 0: none does.
local function kept_out(queue, ms)
  if marked(queue, 'turn', ms) > 0 then
    return 0
  end
  local last = redis.pcall('ZREVRANGE', queue, 0, 1, 'WITHSCORES')
  for i = 1, #last, 2 do  -- the two that end last: no reader phase stands, so one of them is a writer's, if any is
    local ends = tonumber(last[i + 1])
    if string.sub(last[i], 1, 1) == 'w' and ends >= ms then
      return ends - ms + 1
    end
  end
  return 0
end
-- A reader has come, perhaps the first one in its phase: the others follow soon.
local function take_turn(queue, ms)
  if marked(queue, 'turn', ms) > TURN + 1 then
    mark(queue, 'turn', ms, TURN)
  end
end
-- A writer has gone: if readers wait, their phase begins, before the next writer.  An error here must not keep a lock from
-- its release.
local function give_turn(queue)
  if redis.call('PTTL', queue) > 0 then
    local _, ms = clock()
    if marked(queue, 'r', ms) > 0 then
      redis.pcall('ZREM', queue, 'r')
      pcall(mark, queue, 'turn', ms, AWAITED)
    end
  end
end
