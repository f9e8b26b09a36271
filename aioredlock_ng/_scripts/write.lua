-- Write locks, one or several at once, all or nothing (R20 to R22).
-- KEYS     n locks; with fences their n counters; n queues; with a quarantine the incarnation record
-- ARGV     as read.lua
-- returns  {id, 1, fence, µs, before}: all ours; before is the greatest value of the counters before this grant.
--          {id, 0, wait, µs, 0}: other owners have one of the names, or readers come first; wait is the greatest ms that
--          one stays, -1 if a key has no expiry.  {id, -1, 0, µs, 0}: this node has no vote.  µs is its time of day.
local call = redis.call
local us, ms = clock()
local n, owner, floor = #KEYS, ARGV[1], 0
if #ARGV > 7 then
  if not incarnation_matches(KEYS[n], ARGV[7]) then
    return {ARGV[#ARGV], -1, 0, us, 0}
  end
  n, floor = n - 1, tonumber(ARGV[8])
end
local fenced = ARGV[3] ~= '0'
n = fenced and n / 3 or n / 2
local queues, wait, mine, marks, kept_from = fenced and 2 * n or n, 0, 0, false, {}
-- In a reader phase no writer comes in.
for i = 1, n do
  if call('PTTL', KEYS[queues + i]) > 0 then
    local turn = marked(KEYS[queues + i], 'turn', ms)
    marks, wait, kept_from[i] = true, longer(wait, turn), turn > 0
  end
end
-- A single name that is free, the usual case, is ours with this SET.  Else check each name before any is set.
local set = n == 1 and wait == 0 and call('SET', KEYS[1], owner, 'NX', 'PX', ARGV[2])
for i = 1, set and 0 or n do
  local left, ours = taken(KEYS[i], owner)
  wait, mine = longer(wait, left), ours and mine + 1 or mine  -- a repeated command
  kept_from[i] = kept_from[i] or left ~= 0
end
if wait ~= 0 then
  for i = 1, ARGV[6] ~= '' and n or 0 do
    if kept_from[i] then
      mark(KEYS[queues + i], 'w' .. ARGV[6], ms, MARK)
    elseif marks and redis.pcall('ZREM', KEYS[queues + i], 'w' .. ARGV[6]) == 1 then
      tell(KEYS[i])  -- a name that is free now stays free for others
    end
  end
  return {ARGV[#ARGV], 0, wait, us, 0}
end
local before = 0
for i = n + 1, queues do
  before = math.max(before, reading(call('GET', KEYS[i]), floor, ms))
end
local fence = before
if mine < n then
  local ballot = tonumber(ARGV[3])
  fence = even(math.max(before + 1, math.min(ballot, ms * 1024)))
  local stored = fence == ballot and ARGV[3] or fence  -- writing a double as text would take longer
  for i = 1, n do
    if not set then
      call('SET', KEYS[i], owner, 'PX', ARGV[2])
    end
    if fenced then
      call('SET', KEYS[n + i], stored, 'PX', kept(fence, ms, ARGV[5]))
    end
  end
end
for i = queues + 1, marks and ARGV[6] ~= '' and queues + n or 0 do
  redis.pcall('ZREM', KEYS[i], 'w' .. ARGV[6])
end
return {ARGV[#ARGV], 1, fenced and fence or 0, us, before}
