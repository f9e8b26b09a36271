-- A node that lost our keys gets them back, in a round that a majority has won (R9); quarantined ones, too.
-- KEYS     n locks; with a fence their n counters
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, 0}: all are ours and live at least ttl.  {tag, -1}: something is not ours; nothing was changed.
local n, fence = #KEYS, tonumber(ARGV[3])
if fence > 0 then
  n = n / 2
end
for i = 1, n do
  local holder = owner_at(KEYS[i])
  if type(holder) == 'table' then
    return holder
  elseif holder and holder ~= ARGV[1] then
    return {ARGV[5], -1}
  end
end
for i = 1, n do
  if not redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2])
      and redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
if fence > 0 then
  raise_all(n, fence, 0, select(2, clock()), ARGV[4])
end
return {ARGV[5], 0}
