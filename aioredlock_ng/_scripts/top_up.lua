-- A node that lost our keys gets them back, in a round that a majority has won (R9).
-- KEYS     the locks
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- returns  0: all are ours and live at least ttl.  -1: something is not ours; nothing was changed.
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[1] then
    return -1
  end
end
for _, key in ipairs(KEYS) do
  if not redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2])
      and redis.call('PTTL', key) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return 0
