-- A writer, or a reader, has its locks for at least ttl from now.  Never creates, never shortens (R8).  In mode read a
-- writer's own key becomes a reader's: the downgrade (R23).
-- KEYS     n locks; with a fence their n counters; n queues; where votes rest on it the sentinel
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the mode: read or write
-- ARGV[6]  the sentinel that the client expects; these three are left out where there are no sentinels
-- ARGV[7]  the floor in it
-- ARGV[8]  this server's identity, or empty
-- ARGV[#ARGV]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}, as extend.lua.  For a reader what is missing is its entry, where no writer is.
local call = redis.call
local n, owner, ttl, fence, vote, floor = #KEYS, ARGV[1], ARGV[2], tonumber(ARGV[3]), 0, 0
local reads = ARGV[5] == 'read'
local _, ms = clock()
if #ARGV > 6 then
  if sentinel_matches(KEYS[n], ARGV[6], ARGV[8]) then
    floor = tonumber(ARGV[7])
  else
    vote = 10
  end
  n = n - 1
end
n = fence > 0 and n / 3 or n / 2
local queues, missing, ends = fence > 0 and 2 * n or n, false, {}
for i = 1, n do
  ends[i] = reads and reads_until(KEYS[i], owner, ms)
  if not ends[i] then
    local left, ours = taken(KEYS[i], owner, reads)
    if left ~= 0 then
      return {ARGV[#ARGV], vote - 1}
    end
    missing = missing or not ours
  end
end
if missing then
  return {ARGV[#ARGV], vote}
end
for i = 1, n do
  local key = KEYS[i]
  if not reads then
    prolong(key, ttl)
  elseif ends[i] then
    call('ZREMRANGEBYSCORE', key, '-inf', ms - 1)  -- a server at its maxmemory lets what has written go on
    call('ZADD', key, math.max(ends[i], ms + ttl), owner)
    prolong(key, ttl)
  else
    local left = math.max(call('PTTL', key), tonumber(ttl))
    call('DEL', key)
    call('ZADD', key, ms + left, owner)
    call('PEXPIRE', key, left)
    give_turn(KEYS[queues + i])
    tell(key)
  end
end
if fence > 0 then
  raise_all(n, fence, floor, ms, ARGV[4])
end
return {ARGV[#ARGV], vote + 1}
