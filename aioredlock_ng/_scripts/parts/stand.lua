-- Have a counter stand at a value; `stored` is what it is now.
local function stand(counter, stored, value, ms, keep_ms)
  local keep = kept(value, ms, keep_ms)
  if tonumber(stored) == value then
    redis.call('PEXPIRE', counter, keep)  -- takes half the time
  else
    redis.call('SET', counter, value, 'PX', keep)
  end
end
