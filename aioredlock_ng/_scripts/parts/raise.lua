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
