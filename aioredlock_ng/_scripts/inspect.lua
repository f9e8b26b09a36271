-- A lock's holder, and for how long it holds.
-- KEYS[1]  the lock
-- ARGV[1]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, value, ms}: value is false when the lock is free; ms is -1 when there is no expiry.
--          Of a value that is too long to be ours, only the beginning: it could be of any size.
--          The plain WRONGTYPE error where something else than a string is: redis.call would wrap it
--          in words that differ from server to server.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  return value
end
return {ARGV[1], value and string.sub(value, 1, 1024), redis.call('PTTL', KEYS[1])}
