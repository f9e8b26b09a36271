-- Publish that a key is free, saying to how many, or nothing where that may not be asked; returns how many listen, -1
-- where publishing is refused.
local function tell(channel)
  local count = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
  if count ~= 0 then
    count = redis.pcall('PUBLISH', channel, count or '')
  end
  return type(count) == 'table' and -1 or count
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
