-- The owner lifts its counters to one fence, so that the nodes agree on it (R10, R21).
-- KEYS     n locks, their n counters, n queues, the sentinel
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  the mode: read or write
-- ARGV[5]  the sentinel that the client expects
-- ARGV[6]  the floor in it
-- ARGV[7]  this server's identity, or empty
-- ARGV[8]  the tag of this request, with which the answer begins (R15)
-- returns  {tag, n}, as raise.lua; to a reader 1, too, where other readers have raised a counter above the fence.
if not sentinel_matches(KEYS[#KEYS], ARGV[5], ARGV[7]) then
  return {ARGV[8], -1}
end
local n, fence, reads = (#KEYS - 1) / 3, tonumber(ARGV[2]), ARGV[4] == 'read'
local _, ms = clock()
for i = 1, n do
  if not reads and redis.pcall('GET', KEYS[i]) ~= ARGV[1] or reads and not reads_until(KEYS[i], ARGV[1], ms) then
    return {ARGV[8], 0}
  end
end
if fence > (ms + 10000) * 1024 then
  return {ARGV[8], -2}
end
return {ARGV[8], (raise_all(n, fence, tonumber(ARGV[6]), ms, ARGV[3]) or reads) and 1 or -3}
