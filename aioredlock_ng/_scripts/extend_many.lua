-- Several single locks, each extended as if it had come alone: never created, never shortened (R8, R42).
-- KEYS     the lock of each, with fences its counter; with a quarantine the incarnation record
-- ARGV[1]  ttl, milliseconds, > 0
-- ARGV[2]  how long a counter lives unused, milliseconds; empty without fences
-- ARGV[3]  the owner of each, with fences its fence
-- behind   with a quarantine: the record that the client expects, the floor in it; the id of this request, with which
--          the answer begins (R15)
-- returns  {id, answer for each}.  1: extended.  0: the lock is free.  -1: it is another owner's.  10 more: the same,
--          but this node has no vote (R12).  A text: the error where a key is of another type.
local call, pcall = redis.call, redis.pcall
local last_key, last_arg, ttl, vote, floor = #KEYS, #ARGV, tonumber(ARGV[1]), 0, 0
if last_arg - last_key > 3 then
  if incarnation_matches(KEYS[last_key], ARGV[last_arg - 2]) then
    floor = tonumber(ARGV[last_arg - 1])
  else
    vote = 10
  end
  last_key = last_key - 1
end
local fenced = ARGV[2] ~= ''
local ms = fenced and select(2, clock())
-- Raise the counter of a lock that is ours to its fence, as far as that is allowed; returns the error of another type.
local function lift(counter, stored)
  local fence, before = tonumber(stored), pcall('GET', counter)
  if type(before) == 'table' then
    return before.err
  elseif before == stored and fence >= floor then
    call('PEXPIRE', counter, kept(fence, ms, ARGV[2]))
  else
    raise(counter, fence, floor, ms, ARGV[2])
  end
end
local answers = {ARGV[last_arg]}
for i = 1, last_key, fenced and 2 or 1 do
  local lock = KEYS[i]
  local holder, answer = pcall('GET', lock), vote - 1
  if holder == ARGV[i + 2] then
    if call('PTTL', lock) < ttl then
      call('PEXPIRE', lock, ARGV[1])
    end
    answer = fenced and lift(KEYS[i + 1], ARGV[i + 3]) or vote + 1
  elseif not holder then
    answer = vote
  elseif type(holder) == 'table' and not has_readers(lock) then
    answer = holder.err
  end
  answers[#answers + 1] = answer
end
return answers
