-- How many listen on a channel; nil where that may not be asked.
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
end
-- Publish that a key is free, saying to how many, or nothing where that may not be asked, and what else there is to say;
-- returns how many listen, -1 where publishing is refused.
local function tell(channel, more)
  local count = listeners(channel)
  if count ~= 0 then
    count = redis.pcall('PUBLISH', channel, (count or '') .. (more or ''))
  end
  return type(count) == 'table' and -1 or count
end
