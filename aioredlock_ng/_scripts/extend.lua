-- Keys that are all ours live at least ttl from now.  Never creates, never shortens (R8).
-- KEYS     n locks; with a fence their n counters; where votes rest on it the sentinel
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the sentinel that the client expects; these three are left out where there are no sentinels
-- ARGV[6]  the floor in it
-- ARGV[7]  this server's identity, or empty
-- ARGV[#ARGV]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}.  1: extended.  0: something is missing, the rest is ours.  -1: something is not ours.
--          10 more: the same, but this node has no vote (R12).
local n, fence, vote, floor = #KEYS, tonumber(ARGV[3]), 0, 0
if #ARGV > 5 then
  n = n - 1
  if sentinel_matches(KEYS[#KEYS], ARGV[5], ARGV[7]) then
    floor = tonumber(ARGV[6])
  else
    vote = 10
  end
end
if fence > 0 then
  n = n / 2
end
local missing = false
for i = 1, n do
  local holder = owner_at(KEYS[i])
  if type(holder) == 'table' then
    return holder
  elseif not holder then
    missing = true
  elseif holder ~= ARGV[1] then
    return {ARGV[#ARGV], vote - 1}
  end
end
if missing then
  return {ARGV[#ARGV], vote}
end
for i = 1, n do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
if fence > 0 then
  raise_all(n, fence, floor, select(2, clock()), ARGV[4])
end
return {ARGV[#ARGV], vote + 1}
