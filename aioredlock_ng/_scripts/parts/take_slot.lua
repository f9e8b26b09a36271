-- Let a key live for at least so long.
local function keep_on(key, keep_ms)
  if redis.call('PTTL', key) < tonumber(keep_ms) then
    redis.call('PEXPIRE', key, keep_ms)
  end
end
-- The owner has a slot until then.
local function take_slot(key, slot, till, owner, ttl)
  redis.call('HSET', key, slot, string.format('%.0f:%s', till, owner))
  keep_on(key, ttl)
end
