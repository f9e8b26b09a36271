-- Delete what is ours, and tell how long what is not ours will stay (R6; R13 waits by it).
-- KEYS     the locks
-- ARGV[1]  owner
-- returns  {n, wait}: n keys were ours and are gone; the longest of the others has wait ms left
--          (0: there is none, -1: it has no expiry)
local deleted, wait, failure = 0, 0, nil
for _, key in ipairs(KEYS) do
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then
    failure = holder  -- a wrong type: not ours, but the other names must still be released
  elseif holder == ARGV[1] then
    deleted = deleted + redis.call('DEL', key)
  elseif holder then
    local left = redis.call('PTTL', key)
    if left == -1 then
      wait = -1
    elseif left >= 0 and wait >= 0 then
      wait = math.max(wait, left, 1)
    end
  end
end
return failure or {deleted, wait}
