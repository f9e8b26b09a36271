-- This node's time of day, in microseconds and in whole milliseconds.
local function clock()
  local time = redis.call('TIME')
  local us = time[1] * 1000000 + time[2]
  return us, math.floor(us / 1000)
end
-- The effective value of a counter: `stored` is what it holds, or false where there is none (R11).
local function reading(stored, floor, ms)
  return math.max(tonumber(stored) or (ms - 288000) * 1024, floor)
end
-- How long a counter is kept: until the value of a missing one has passed it, even if this clock was far ahead when it was
-- set.
local function kept(value, ms, keep_ms)
  local needed = math.floor(value / 1024) - ms + 300000
  return needed > tonumber(keep_ms) and needed or keep_ms  -- as the text that it was
end
-- The number, or the next even one: after a holder that was alone the counter is even (R21).
local function even(value)
  return value + value % 2
end
