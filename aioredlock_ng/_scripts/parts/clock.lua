-- This node's time of day, in microseconds and in whole milliseconds.
local function clock()
  local time = redis.call('TIME')
  local us = time[1] * 1000000 + time[2]
  return us, math.floor(us / 1000)
end
