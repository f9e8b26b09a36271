-- The owner has a slot until then.
local function take_slot(key, slot, till, owner, ttl)
  redis.call('HSET', key, slot, till .. ':' .. owner)
  prolong(key, ttl)
end
