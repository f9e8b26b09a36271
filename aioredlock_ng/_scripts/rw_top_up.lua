-- A node that lost our keys gets them back, in a round that a majority has won (R9); quarantined ones, too.
-- KEYS     n locks; with a fence their n counters; n queues
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the mode: read or write
-- ARGV[6]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, 0}: all are ours and live at least ttl.  {tag, -1}: something is not ours; nothing was changed.
local call = redis.call
local n, owner, ttl, fence, reads = #KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5] == 'read'
local _, ms = clock()
n = fence > 0 and n / 3 or n / 2
for i = 1, n do
  local left, ours = taken(KEYS[i], owner, reads)
  if left ~= 0 or reads and ours then
    return {ARGV[6], -1}
  end
end
for i = 1, n do
  local key = KEYS[i]
  if reads then
    call('ZADD', key, math.max(ms + ttl, reads_until(key, owner, ms) or 0), owner)
  else
    call('SET', key, owner, 'NX', 'PX', ttl)
  end
  prolong(key, ttl)
end
if fence > 0 then
  raise_all(n, fence, 0, ms, ARGV[4])
end
return {ARGV[6], 0}
