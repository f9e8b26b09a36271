-- The functions of a kind for raise.lua, extend.lua and repair.lua: a reader or a writer, by the mode.
local OWN, BESIDE = 1, 1
-- As parts/mutex.lua.  The second value is until when a reader reads; nil where the key is still that of the writer which
-- it was before a downgrade (R23).
local function holding(key, owner, ms, mode)
  local till = mode == 'read' and reads_until(key, owner, ms)
  if till then
    return 1, till
  end
  local left, ours = taken(key, owner, mode == 'read')
  return left ~= 0 and -1 or ours and 1 or 0
end
local function lengthen(key, owner, ttl, ms, mode, till, queue)
  if mode == 'write' then
    prolong(key, ttl)
  elseif till then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', ms - 1)  -- after a write a server at its maxmemory allows the ZADD
    redis.call('ZADD', key, math.max(till, ms + ttl), owner)
    prolong(key, ttl)
  else  -- the downgrade (R23): the writer's own key becomes a reader's
    local left = math.max(redis.call('PTTL', key), tonumber(ttl))
    redis.call('DEL', key)
    redis.call('ZADD', key, ms + left, owner)
    redis.call('PEXPIRE', key, left)
    give_turn(queue)
    tell(key)
  end
end
local function restore(key, owner, ttl, ms, mode)
  if mode == 'write' then
    redis.call('SET', key, owner, 'PX', ttl)
  else
    redis.call('ZADD', key, ms + ttl, owner)
    prolong(key, ttl)
  end
end
-- Other readers may have raised a reader's counter above its fence: that is no failure (R21).
local function raise_counters(n, fence, floor, ms, keep_ms, mode)
  return raise_all(n, fence, floor, ms, keep_ms) or mode == 'read'
end
