-- Several single locks: each is deleted if it is ours, as if it had come alone (R6, R42).
-- KEYS     n locks
-- ARGV[1]  as ARGV[4] of release.lua: empty, or each deletion is published
-- ARGV[2]  the owners, one for each lock
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, answer for each}.  1: deleted, and its channel has no subscribers.  Else the answer of release.lua
--          without its request id.  A text: the error where the key is of another type.
local call, pcall = redis.call, redis.pcall
local answers, counts = {ARGV[#ARGV]}, nil
if ARGV[1] ~= '' then
  counts = pcall('PUBSUB', 'NUMSUB', unpack(KEYS))  -- an error where that may not be asked: then none is known
end
for i = 1, #KEYS do
  local key, reached, answer = KEYS[i], 0, 1
  if counts then
    reached = counts[2 * i]
  end
  local holder = pcall('GET', key)
  if holder == ARGV[i + 1] then
    call('DEL', key)
    if reached ~= 0 then
      reached = pcall('PUBLISH', key, reached or '')
      if reached ~= 0 then
        answer = {1, 0, type(reached) == 'table' and -1 or reached}
      end
    end
  elseif not holder then
    answer = {0, 0, reached or 0}
  elseif type(holder) == 'table' and not has_readers(key) then
    answer = holder.err
  else
    local left = call('PTTL', key)
    holder = type(holder) == 'table' and 'readers' or holder
    answer = {0, left == -1 and -1 or math.max(left, 1), reached or 0, is_foreign(holder), label(holder)}
  end
  answers[i + 1] = answer
end
return answers
