-- Set a counter; returns what was there, or the error where that is of another type, which stays.
local function replaced(counter, value, keep_ms)
  local before = redis.pcall('SET', counter, value, 'PX', keep_ms, 'GET')
  if type(before) == 'table' then  -- another type; or Redis 6.0, whose SET has no GET
    before = redis.pcall('GET', counter)
    if type(before) ~= 'table' then
      redis.call('SET', counter, value, 'PX', keep_ms)
    end
  end
  return before
end
