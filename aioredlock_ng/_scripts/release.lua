-- Delete the keys that are ours, and return how long the others stay (R6); waiters use that (R13).
-- KEYS     n locks; with a fence their n counters
-- ARGV[1]  owner
-- ARGV[2]  the lease's fence, 0 without
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  empty: nothing is published; else for each key that is deleted a notification goes to the subscribers of the
--          channel of its own name: their number, or nothing where that may not be asked
-- ARGV[5]  milliseconds for which our keys stay taken, if they live so long, without a notification (R34); left out
--          where they are to be deleted.  A letter in the value then marks a key as kept.
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, deleted, wait, reached}, and where there are keys that are not ours {…, foreign} or {…, foreign, label}
--          deleted  how many keys were ours: they are deleted, or stay for ARGV[5]
--          wait     the greatest ms left of the others; 0: there is none, -1: one has no expiry
--          reached  the greatest number of subscribers of one key's channel; 0: none, or unknown, or nothing was to be
--                   published, -1: publishing was refused
--          foreign  1: another program wrote one of the others, and will not publish its release; else 0
--          label    the label of the holder of one of the others; left out where none is this package's
local n, fence = #KEYS, tonumber(ARGV[2])
if fence > 0 then
  n = n / 2
end
local kept_value = #ARGV > 5 and string.gsub(ARGV[1], '^(%x+:%d+):', '%1k:')
local deleted, wait, reached, failure, foreign, other = 0, 0, 0, nil, nil, nil
for i = 1, n do
  local holder = owner_at(KEYS[i])
  if type(holder) == 'table' then
    failure = holder  -- a wrong type: not ours, but the other names must still be released
  elseif holder == ARGV[1] or (kept_value and holder == kept_value) then
    if #ARGV > 5 then
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 or left > tonumber(ARGV[5]) then  -- never longer than it would have lived
        left = ARGV[5]
      end
      if type(redis.pcall('SET', KEYS[i], kept_value, 'PX', left)) == 'table' then
        redis.call('PEXPIRE', KEYS[i], left)
      end
      deleted = deleted + 1
    else
      deleted = deleted + redis.call('DEL', KEYS[i])
    end
    if ARGV[4] ~= '' then
      local count = tell(KEYS[i])
      reached = (reached == -1 or count == -1) and -1 or math.max(reached, count)
    end
    if fence > 0 then  -- what fails here must not keep a lock from its release
      local _, ms = clock()
      if redis.pcall('GET', KEYS[n + i]) == ARGV[2] then
        redis.pcall('PEXPIRE', KEYS[n + i], kept(fence, ms, ARGV[3]))
      else
        pcall(raise, KEYS[n + i], fence, 0, ms, ARGV[3])
      end
    end
  else
    if holder then
      local left = redis.call('PTTL', KEYS[i])
      if left == -1 then
        wait = -1
      elseif left >= 0 and wait >= 0 then
        wait = math.max(wait, left, 1)
      end
      if foreign ~= 1 then
        foreign = is_foreign(holder)
      end
      other = other or label(holder)
    end
    if ARGV[4] ~= '' and reached >= 0 then
      reached = math.max(reached, listeners(KEYS[i]) or 0)
    end
  end
end
return failure or {ARGV[#ARGV], deleted, wait, reached, foreign, other}
