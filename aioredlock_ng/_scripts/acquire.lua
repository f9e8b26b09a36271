-- One lock or several at once, all or nothing, with a fence (R10).
-- KEYS     n locks, their n counters, the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  ballot: the fence that the client proposes; of a fence range the first one
-- ARGV[4]  size of the fence range: how many fences in a row the client asks for
-- ARGV[5]  how long a counter lives unused, milliseconds
-- ARGV[6]  the record that the client expects
-- ARGV[7]  the floor in it
-- ARGV[8]  the id of this request, with which the answer begins (R15)
-- returns  {id, 1, fence, µs}: all ours; fence is the last one of the range.  {id, 0, wait, µs}: taken; wait is the
--          greatest ms left of the keys in the way, -1 if one has no expiry.  {id, -1, 0, µs}: this node has no
--          vote.  µs is its time of day.
local call = redis.call
local us, ms = clock()
if not incarnation_matches(KEYS[#KEYS], ARGV[6]) then
  return {ARGV[8], -1, 0, us}
end
local n, mine = (#KEYS - 1) / 2, 0
-- A single name that is free, the usual case, is ours with this SET.  Else check each name before any is set.
if n > 1 or not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local wait = 0
  for i = 1, n do
    local holder = owner_at(KEYS[i])
    if type(holder) == 'table' then
      return holder
    elseif holder == ARGV[1] then
      mine = mine + 1  -- a repeated command
    elseif holder then
      local left = call('PTTL', KEYS[i])
      if left == -1 then
        wait = -1
      elseif wait >= 0 then
        wait = math.max(wait, left, 1)
      end
    end
  end
  if wait ~= 0 then
    return {ARGV[8], 0, wait, us}
  end
end
-- All names are free or ours.  One fence for all of them: above each of their counters.
local fence = 0
for i = n + 1, 2 * n do
  fence = math.max(fence, reading(call('GET', KEYS[i]), tonumber(ARGV[7]), ms))
end
-- A repeated command, all of whose names are ours, gets the fence that it got before.
if mine < n then
  local ballot = tonumber(ARGV[3])
  fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)) + ARGV[4] - 1)
  local stored = fence == ballot and ARGV[3] or fence  -- writing a double as text would take longer
  for i = 1, n do
    if n > 1 then
      call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    end
    call('SET', KEYS[n + i], stored, 'PX', kept(fence, ms, ARGV[5]))
  end
end
return {ARGV[8], 1, fence, us}
