-- Read locks, one or several at once, all or nothing (R20 to R22).
-- KEYS     n locks; with fences their n counters; n queues; with a quarantine the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  ballot: the fence that the client proposes; 0 without fences
-- ARGV[4]  1: readers have no fence ranges
-- ARGV[5]  how long a counter lives unused, milliseconds
-- ARGV[6]  the seat of the call, which leaves a waiting flag where it has to wait; empty: it does not wait
-- ARGV[7]  the record that the client expects; both are left out where there are none
-- ARGV[8]  the floor in it
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, 1, fence, µs}: all ours.  {id, 0, wait, µs}: a writer has one of the names, or waits for it; wait is
--          the greatest ms that one stays, -1 if a key has no expiry.  {id, -1, 0, µs}: this node has no vote.  µs is
--          its time of day.
local call = redis.call
local us, ms = clock()
local n, owner, ttl, floor = #KEYS, ARGV[1], ARGV[2], 0
if #ARGV > 7 then
  if not incarnation_matches(KEYS[n], ARGV[7]) then
    return {ARGV[#ARGV], -1, 0, us}
  end
  n, floor = n - 1, tonumber(ARGV[8])
end
local fenced = ARGV[3] ~= '0'
n = fenced and n / 3 or n / 2
local queues, wait, mine, marks, kept_from = fenced and 2 * n or n, 0, {}, {}, {}
-- A single name without waiting flags, the usual case, needs no check before the ZADD below.
for i = 1, n do
  local key, queue = KEYS[i], KEYS[queues + i]
  marks[i] = call('PTTL', queue) > 0
  if marks[i] or n > 1 then
    mine[i] = reads_until(key, owner, ms)  -- a repeated command
    if not mine[i] then
      local left = longer(kept_out(queue, ms), taken(key, false, true))
      wait, kept_from[i] = longer(wait, left), left ~= 0
    end
  end
end
-- Nothing known is in the way: enter each set.
for i = 1, wait == 0 and n or 0 do
  local key, ends = KEYS[i], ms + ttl
  local added = not mine[i] and redis.pcall('ZADD', key, 'NX', ends, owner)
  if type(added) == 'table' then  -- a writer is there, or it cannot be done
    wait, kept_from[i] = taken(key, false, true), true
    if wait == 0 then
      return added
    end
  elseif added and (added == 1 or not reads_until(key, owner, ms)) then
    if added == 0 then
      call('ZADD', key, ends, owner)
    end
    local left = call('PTTL', key)
    if left == -1 and call('ZREVRANGE', key, 0, 1)[2] then  -- another program's set, which has no expiry
      call('ZREM', key, owner)
      wait, kept_from[i] = -1, true
    else
      if left ~= -1 then  -- others are in, some of which may have ended
        call('ZREMRANGEBYSCORE', key, '-inf', ms - 1)
      end
      if left < tonumber(ttl) then
        call('PEXPIRE', key, ttl)
      end
      if marks[i] then
        take_turn(KEYS[queues + i], ms)
      end
    end
  end
end
-- Refused: a waiting flag at the names that were in the way, and only there.  At the others the phase need not wait for
-- this reader any more.
if wait ~= 0 then
  for i = 1, ARGV[6] ~= '' and n or 0 do
    if kept_from[i] then
      mark(KEYS[queues + i], 'r', ms, MARK)
    elseif marks[i] then
      take_turn(KEYS[queues + i], ms)
    end
  end
  return {ARGV[#ARGV], 0, wait, us}
end
local fence, stood = 0, {}
for i = n + 1, queues do
  local stored = call('GET', KEYS[i])
  local counted = reading(stored, floor, ms)
  stood[i] = stored
  if not stored then  -- a fresh name: the ballot makes nodes agree
    counted = math.max(counted, math.min(tonumber(ARGV[3]), ms * 1024))
  end
  fence = math.max(fence, counted)
end
fence = even(fence + 1) - 1  -- an odd one, which all readers between two writers share (R21)
for i = n + 1, queues do
  stand(KEYS[i], stood[i], fence, ms, ARGV[5])
end
return {ARGV[#ARGV], 1, fenced and fence or 0, us}
