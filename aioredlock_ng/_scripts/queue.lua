-- The queue of waiters for a fair lock (R28), and the writers that wait for a read-write lock (R22).
-- KEYS     the tickets and the seats of the queue; the waiting flags
-- ARGV[1]  how many waiters to return at most, from the front of the queue
-- ARGV[2]  the id of this request, with which the answer begins (R15)
-- returns  {id, more, {seat, ticket, …}, {writer, …}}: the seats that have not ended, in their order; more is 1 when the
--          queue is longer; and as many writers at most, by the names in their flags
local _, ms = clock()
-- Without a queue a client that has no right to one can still ask for writers.
local queued = redis.call('PTTL', KEYS[1]) ~= -2
local line, found = queued and redis.call('ZRANGE', KEYS[1], 0, ARGV[1], 'WITHSCORES') or {}, {}
local most = 2 * tonumber(ARGV[1])
for i = 1, math.min(#line, most), 2 do
  if tonumber(redis.call('ZSCORE', KEYS[2], line[i]) or 0) >= ms then
    found[#found + 1] = string.sub(line[i], 1, 1024)
    found[#found + 1] = tonumber(line[i + 1])
  end
end
local flags, writers = redis.pcall('ZREVRANGE', KEYS[3], 0, ARGV[1] - 1, 'WITHSCORES'), {}
for i = 1, #flags, 2 do
  if string.sub(flags[i], 1, 1) == 'w' and tonumber(flags[i + 1]) >= ms then
    writers[#writers + 1] = string.sub(flags[i], 2, 1024)
  end
end
return {ARGV[2], #line > most and 1 or 0, found, writers}
