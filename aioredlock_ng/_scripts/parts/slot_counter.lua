-- The counters of a semaphore, one for each slot in a hash that lives as long as any of them needs (R11, R25).
-- Have one stand at a value; `stored` is what it is now.
local function slot_stand(counters, slot, stored, value, ms, keep_ms)
  if tonumber(stored) ~= value then
    redis.call('HSET', counters, slot, value)
  end
  prolong(counters, kept(value, ms, keep_ms))
end
-- The slot's owner lifts its counter to its fence (R10); false when it does not stand there then.
local function raise_slot(counters, slot, fence, floor, ms, keep_ms)
  local stored = redis.call('HGET', counters, slot)
  local before = reading(stored, floor, ms)
  if before < fence and fence > (ms + 10000) * 1024 then
    prolong(counters, kept(before, ms, keep_ms))  -- too far ahead of this node's clock
    return false
  end
  slot_stand(counters, slot, stored, math.max(before, fence), ms, keep_ms)
  return before <= fence
end
