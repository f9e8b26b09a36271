-- Let a key live for at least ttl from now.
local function prolong(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end
-- Set a counter to a value; `stored` is its value now.
local function stand(counter, stored, value, ms, keep_ms)
  local keep = kept(value, ms, keep_ms)
  if tonumber(stored) == value then
    redis.call('PEXPIRE', counter, keep)  -- takes half the time
  else
    redis.call('SET', counter, value, 'PX', keep)
  end
end
-- Raise the counter of a lock that is ours to its fence (R10); false when it is not at the fence then.
local function raise(counter, fence, floor, ms, keep_ms)
  local stored = redis.call('GET', counter)
  local before = reading(stored, floor, ms)
  if before < fence and fence > (ms + 10000) * 1024 then
    redis.call('PEXPIRE', counter, kept(before, ms, keep_ms))  -- too far ahead of this node's clock
    return false
  end
  stand(counter, stored, math.max(before, fence), ms, keep_ms)
  return before <= fence
end
-- The same for the counters of n locks; false when one of them is not at the fence then.
local function raise_all(n, fence, floor, ms, keep_ms)
  local agreed = true
  for i = n + 1, 2 * n do
    agreed = raise(KEYS[i], fence, floor, ms, keep_ms) and agreed
  end
  return agreed
end
