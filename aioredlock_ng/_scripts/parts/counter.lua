-- This node's time of day, in microseconds and in whole milliseconds.
local function clock()
  local time = redis.call('TIME')
  local us = time[1] * 1000000 + time[2]
  return us, math.floor(us / 1000)
end
-- A counter as it counts: `stored` is its value, or false where there is none (R11).
local function reading(stored, floor, ms)
  return math.max(tonumber(stored) or (ms - 288000) * 1024, floor)
end
-- How long a counter is kept: until `start` has passed it, also where this clock was far ahead when it was made.
local function kept(value, ms, keep_ms)
  local needed = math.floor(value / 1024) - ms + 300000
  return needed > tonumber(keep_ms) and needed or keep_ms  -- as the text that it was
end
-- The number itself, or the next: where one holder alone has had the name the counter is even (R21).
local function even(value)
  return value + value % 2
end
