-- The label in an owner value of ours, behind the random part, the time and the kind, and cut where it is too long; nil for
-- any other value.
local function label(holder)
  local random, since, rest = string.match(holder, '^([0-9a-f]+):(%d+)%l?:(.*)$')
  return random and #random == 40 and #since == 13 and string.sub(rest, 1, 1024) or nil
end
-- 1 where another program wrote the value, and will not publish its release; else 0.
local function is_foreign(holder)
  return string.find(holder, ':', 1, true) == 41 and 0 or 1  -- ours begin with 40 hex digits
end
-- The number of subscribers of a channel; nil where that may not be asked.
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
end
-- Publish that a key is free: the number of subscribers, or nothing where that may not be asked, and `more`.  Returns the
-- number of subscribers, -1 where publishing is refused.
local function tell(channel, more)
  local count = listeners(channel)
  if count ~= 0 then
    count = redis.pcall('PUBLISH', channel, (count or '') .. (more or ''))
  end
  return type(count) == 'table' and -1 or count
end
