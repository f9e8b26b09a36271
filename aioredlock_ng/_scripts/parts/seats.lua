-- The seats of the waiters for a fair lock, never read for safety (R28, R29): a sorted set of their tickets, which give
-- their order, and one of the moments in ms at which they end.  'free' and 'late' in that one are no seats: since when the
-- lock is free, or when its holder ends; and until when head starts are long.
-- In ms: the head start of each waiter before the next one; the additional life of a seat for each one ahead of it, and up
-- to how many of them.  In numbers: ended seats that one call drops; seats that are notified of a release, and that are
-- tried for it.
local HEAD_START, LIFE_PER_SEAT, MOST_AHEAD, MOST_DROPPED, MOST_NOTIFIED, MOST_TRIED = 50, 60, 1000, 64, 2, 8
-- In ms: the long head start, and how long it applies after a waiter has come back that was passed over.
local LONG_START, LATE = 200, 10000
-- Remove a seat, and with the last one both sets; returns whether it was there.
local function leave(tickets, seats, seat)
  local left = redis.call('ZREM', tickets, seat) == 1
  redis.call('ZREM', seats, seat)
  if left and redis.call('PTTL', tickets) == -2 then
    redis.call('DEL', seats)
  end
  return left
end
-- How many seats are ahead of a seat, or in the queue if the seat is not; ended seats at the front are dropped.
local function ahead_of(tickets, seats, seat, ms)
  for _ = 1, MOST_DROPPED do
    local first = redis.call('ZRANGE', tickets, 0, 0)[1]
    if not first then
      return 0
    end
    local ends = tonumber(redis.call('ZSCORE', seats, first) or 0)
    if ends >= ms or first == seat then
      break
    end
    leave(tickets, seats, first)
  end
  local rank = seat ~= '' and redis.call('ZRANK', tickets, seat)
  if not rank then
    local last = redis.call('ZREVRANGE', tickets, 0, 0)[1]
    rank = last and redis.call('ZRANK', tickets, last) + 1
  end
  return rank or 0
end
-- Take or keep a seat with this ticket; 0: with the ticket that it has, or else the next one.  Returns the ticket.
local function sit(tickets, seats, seat, ticket, ms, life)
  if ticket == 0 then
    local last = redis.call('ZREVRANGE', tickets, 0, 0, 'WITHSCORES')[2]
    ticket = tonumber(redis.call('ZSCORE', tickets, seat) or math.max(tonumber(last or 0) + 1, ms * 1024))
  end
  redis.call('ZADD', tickets, ticket, seat)
  prolong(tickets, life)  -- first: an error below must not leave a key without expiry
  life = life + LIFE_PER_SEAT * math.min(redis.call('ZRANK', tickets, seat), MOST_AHEAD)
  redis.call('ZADD', seats, ms + life, seat)
  prolong(tickets, life)
  prolong(seats, life)
  return ticket
end
-- Note since when the lock is free, or when its holder ends.
local function free_since(seats, ms)
  if redis.call('ZADD', seats, ms, 'free') == 1 and redis.call('PTTL', seats) < 0 then
    redis.call('DEL', seats)  -- nothing waits
  end
end
-- Note that a waiter has come back that was passed over: it lives, and is far away.
local function came_late(seats, ms)
  redis.call('ZADD', seats, ms + LATE, 'late')
end
-- The head start of each waiter before the next one, in ms.
local function start(seats, ms)
  local late = tonumber(redis.call('ZSCORE', seats, 'late') or 0)
  return late > ms and late <= ms + LATE and LONG_START or HEAD_START
end
-- How many ms the waiters ahead of a seat still come first at a lock that is free; 0: their head starts are over.
local function head_start(seats, ahead, ms)
  local since = tonumber(redis.call('ZSCORE', seats, 'free'))
  if not since or since > ms then  -- it ended without a release: deleted by an operator, say
    since = ms
    free_since(seats, ms)
  end
  return math.max(0, since + ahead * start(seats, ms) - ms)
end
-- Notify the first waiters that the lock is free, each on the channel of its seat and with its position; returns how many
-- were notified, -1 where publishing is refused.  A seat without a subscriber is skipped: its connection is gone.
local function tell_first(tickets)
  local reached = 0
  for place, seat in ipairs(redis.call('ZRANGE', tickets, 0, MOST_TRIED - 1)) do
    local heard = redis.pcall('PUBLISH', seat, '1:' .. place - 1 .. '@' .. tickets)
    if type(heard) == 'table' then
      return -1
    end
    reached = reached + math.min(heard, 1)
    if reached == MOST_NOTIFIED then
      break
    end
  end
  return reached
end
