-- The seats of those that wait for a fair lock, never read for safety (R28, R29): a sorted set of their tickets, which say
-- which comes before which, and one of the moments in ms at which they end.  'free' and 'late' in that one are no seats:
-- they say since when the lock is free, or when its holder ends; and until when head starts are long.
-- In ms, how long the first in line may ask before the next may; how long a seat lives more for each that is before it,
-- up to how many.  Seats that have ended and are dropped at once, and those that are told of a release, or tried to be.
local HEAD_START, LIFE_PER_SEAT, MOST_AHEAD, MOST_DROPPED, TOLD, MOST_TRIED = 50, 60, 1000, 64, 2, 8
-- In ms, how long a head start is for so long after one has come back that was passed over.
local LONG_START, LATE = 200, 10000
-- Take a seat away, and with the last one all; whether there was one.
local function leave(tickets, seats, seat)
  local left = redis.call('ZREM', tickets, seat) == 1
  redis.call('ZREM', seats, seat)
  if left and redis.call('PTTL', tickets) == -2 then
    redis.call('DEL', seats)
  end
  return left
end
-- How many seats are before one, or in all; those at the front that have ended go.
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
-- Have a seat with a ticket, of 0 with the one that it has, or the next; returns it.
local function sit(tickets, seats, seat, ticket, ms, life)
  if ticket == 0 then
    local last = redis.call('ZREVRANGE', tickets, 0, 0, 'WITHSCORES')[2]
    ticket = tonumber(redis.call('ZSCORE', tickets, seat) or math.max(tonumber(last or 0) + 1, ms * 1024))
  end
  redis.call('ZADD', tickets, ticket, seat)
  prolong(tickets, life)  -- first: what fails below must not leave a key without an end
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
-- Note that one has come back that was passed over: it lives, and is far away.
local function came_late(seats, ms)
  redis.call('ZADD', seats, ms + LATE, 'late')
end
-- How long the first in line may ask before the next may.
local function start(seats, ms)
  local late = tonumber(redis.call('ZSCORE', seats, 'late') or 0)
  return late > ms and late <= ms + LATE and LONG_START or HEAD_START
end
-- For how long others come first that are before a seat, of a lock that is free; 0: they do not any more.
local function head_start(seats, ahead, ms)
  local since = tonumber(redis.call('ZSCORE', seats, 'free'))
  if not since or since > ms then  -- it went without a word: by force, say
    since = ms
    free_since(seats, ms)
  end
  return math.max(0, since + ahead * start(seats, ms) - ms)
end
-- Tell the first in line that the lock is free, each on the channel of its name and with its place; returns how many
-- heard of it, -1 where publishing is refused.  One that does not hear is passed by: its connection is gone.
local function tell_first(tickets)
  local told = 0
  for place, seat in ipairs(redis.call('ZRANGE', tickets, 0, MOST_TRIED - 1)) do
    local heard = redis.pcall('PUBLISH', seat, '1:' .. place - 1 .. '@' .. tickets)
    if type(heard) == 'table' then
      return -1
    end
    told = told + math.min(heard, 1)
    if told == TOLD then
      break
    end
  end
  return told
end
