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
  return math.max(tonumber(keep_ms), math.floor(value / 1024) - ms + 300000)
end
-- The lock's owner lifts a counter to its fence (R10); false when it does not stand there then.
local function raise(counter, fence, floor, ms, keep_ms)
  local before = reading(redis.call('GET', counter), floor, ms)
  if before < fence and fence > (ms + 10000) * 1024 then
    redis.call('PEXPIRE', counter, kept(before, ms, keep_ms))  -- too far ahead of this node's clock
    return false
  end
  local after = math.max(before, fence)
  redis.call('SET', counter, after, 'PX', kept(after, ms, keep_ms))
  return before <= fence
end
-- The same for the counters behind n locks; false when one of them does not stand there then.
local function raise_all(n, fence, floor, keep_ms)
  local _, ms = clock()
  local agreed = true
  for i = n + 1, 2 * n do
    agreed = raise(KEYS[i], fence, floor, ms, keep_ms) and agreed
  end
  return agreed
end
