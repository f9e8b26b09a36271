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
