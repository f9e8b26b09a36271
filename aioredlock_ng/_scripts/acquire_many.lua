-- Several single locks, each granted or refused as if it had come alone, with fences (R10, R42).
-- KEYS     lock and counter of each, the incarnation record
-- ARGV[1]  ttl, milliseconds
-- ARGV[2]  ballot: the fence that the client proposes, the first one of each lock's fence range
-- ARGV[3]  size of each lock's fence range
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the owners, one for each lock
-- behind   the record that the client expects, the floor in it, the id of this request, with which the answer begins (R15)
-- returns  {id, µs, answer for each}, or {id, µs}: this node has no vote.  µs is its time of day.
--          n > 0: ours; n is the last fence of the range.  n < 0: taken by a key that has -n ms left.
--          0: taken by a key without expiry.  A text: the error where a key is of another type.
-- Set a counter; returns its value before, or the error where the key is of another type, which stays.
local function replaced(counter, value, keep_ms)
  local before = redis.pcall('SET', counter, value, 'PX', keep_ms, 'GET')
  if type(before) == 'table' then  -- another type; or Redis 6.0, whose SET has no GET
    before = redis.pcall('GET', counter)
    if type(before) ~= 'table' then
      redis.call('SET', counter, value, 'PX', keep_ms)
    end
  end
  return before
end
local call, pcall = redis.call, redis.pcall
local n, last_arg = (#KEYS - 1) / 2, #ARGV
local us, ms = clock()
local answers = {ARGV[last_arg], us}
if not incarnation_matches(KEYS[#KEYS], ARGV[last_arg - 2]) then
  return answers
end
local ttl, ballot, block, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[last_arg - 1])
local first = math.min(ballot, ms * 1024)
local last = even(first + block - 1)
-- What the usual counter becomes, once for all locks and as text: writing a double as text takes longer.
local stored, keep_ms = last == ballot and ARGV[2] or string.format('%.0f', last), kept(last, ms, ARGV[4])
for i = 1, n do
  local lock, counter, owner, answer = KEYS[2 * i - 1], KEYS[2 * i], ARGV[4 + i], last
  if call('SET', lock, owner, 'NX', 'PX', ttl) then
    -- It was free.  The counter gets the usual value first, and another one only if it was above that.
    local before = replaced(counter, stored, keep_ms)
    if type(before) == 'table' then
      answer = before.err
    else
      before = reading(before, floor, ms)
      if before >= first then
        answer = even(before + block)
        call('SET', counter, answer, 'PX', kept(answer, ms, ARGV[4]))
      end
    end
  else
    local holder = pcall('GET', lock)
    if holder == owner then  -- a repeated command
      local before = pcall('GET', counter)
      answer = type(before) == 'table' and before.err or reading(before, floor, ms)
    elseif type(holder) == 'table' and not has_readers(lock) then
      answer = holder.err
    else
      local left = call('PTTL', lock)
      answer = left == -1 and 0 or -math.max(left, 1)
    end
  end
  answers[i + 2] = answer
end
return answers
