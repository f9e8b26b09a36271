-- Keys that are all ours live at least ttl from now.  Never creates, never shortens (R8).
-- KEYS     the locks
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- returns  1: extended.  0: something is missing, the rest is ours.  -1: something is not ours.
local missing = false
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if not holder then
    missing = true
  elseif holder ~= ARGV[1] then
    return -1
  end
end
if missing then
  return 0
end
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return 1
