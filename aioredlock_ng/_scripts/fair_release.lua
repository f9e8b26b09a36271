-- Delete the lock if it is ours, keep or leave the seat, and return how long the lock stays another's (R6, R28 to R30).
-- KEYS     the lock; with a fence its counter; tickets and seats of the waiters
-- ARGV[1]  owner
-- ARGV[2]  the lease's fence, 0 without
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  1: if the key is deleted, notify the first seats, each on a channel of its own, and the subscribers of the
--          channel of the key's own name.  Empty: notify none
-- ARGV[5]  the seat of the call; empty: it has none
-- ARGV[6]  the ticket with which the call waits on; 0: it waits no more
-- ARGV[7]  how long a seat lives at least after its last request, milliseconds
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, deleted, wait, reached}, and where another owner has it {…, foreign} or {…, foreign, label}: as
--          release.lua.  wait includes the head starts of the waiters ahead, even if the lock is free; reached is how many
--          of the first seats were notified.
local call = redis.call
local n, fence, seat, ticket = #KEYS, tonumber(ARGV[2]), ARGV[5], tonumber(ARGV[6])
local key, tickets, seats = KEYS[1], KEYS[n - 1], KEYS[n]
local _, ms = clock()
local holder, deleted, wait, reached, foreign, other = owner_at(key), 0, 0, 0, nil, nil
if holder == ARGV[1] then
  deleted, holder = call('DEL', key), false
  if fence > 0 then  -- what fails here must not keep a lock from its release
    pcall(raise, KEYS[2], fence, 0, ms, ARGV[3])
  end
elseif type(holder) == 'string' then
  local left = call('PTTL', key)
  wait = left == -1 and -1 or math.max(left, 1)
  foreign, other = is_foreign(holder), label(holder)
end
-- Keep, take or leave the seat, and notify the first seats.  An error here must not keep a lock from its release.
local function in_line()
  local left = false
  if ticket > 0 then
    sit(tickets, seats, seat, ticket, ms, tonumber(ARGV[7]))
  elseif call('PTTL', tickets) <= 0 then
    return  -- the most frequent case: nothing waits
  elseif seat ~= '' then
    left = leave(tickets, seats, seat)
  end
  local ahead = ahead_of(tickets, seats, seat, ms)
  if wait > 0 then
    wait = wait + ahead * start(seats, ms)
  elseif not holder then
    if deleted > 0 then
      free_since(seats, ms)
    end
    wait = head_start(seats, ahead, ms)
    if ARGV[4] ~= '' and (deleted > 0 or left) then
      reached = tell_first(tickets)
    end
  end
end
pcall(in_line)
if deleted > 0 and ARGV[4] ~= '' then
  tell(key)
end
return type(holder) == 'table' and holder or {ARGV[#ARGV], deleted, wait, reached, foreign, other}
