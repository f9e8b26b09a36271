-- A mutex that is granted first come, first served (R28, R29).
-- KEYS     the lock; with fences its counter; tickets and seats of the waiters; with a quarantine the incarnation record
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  ballot: the fence that the client proposes; 0 without fences
-- ARGV[4]  1: fair locks have no fence ranges
-- ARGV[5]  how long a counter lives unused, milliseconds
-- ARGV[6]  the seat of the call; empty: it does not wait
-- ARGV[7]  the ticket of the seat; 0: it has none so far
-- ARGV[8]  how long a seat lives at least after its last request, milliseconds
-- ARGV[9]  the record that the client expects; both are left out where there are none
-- ARGV[10] the floor in it
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, 1, fence, µs, 0, 0}: ours.  {id, 0, wait, µs, ticket, ahead}: it is taken, or other waiters come first,
--          for wait ms at most, or -1 for ever; ahead is how many of them there are.  {id, -1, 0, µs, 0, 0}: this node
--          has no vote.  µs is its time of day.
local call = redis.call
local us, ms = clock()
local n, owner, seat, floor = #KEYS, ARGV[1], ARGV[6], 0
if #ARGV > 9 then
  if not incarnation_matches(KEYS[n], ARGV[9]) then
    return {ARGV[#ARGV], -1, 0, us, 0, 0}
  end
  n, floor = n - 1, tonumber(ARGV[10])
end
local key, tickets, seats, ahead = KEYS[1], KEYS[n - 1], KEYS[n], 0
-- left: ms that the lock stays another's.  mine: it is ours already, by a repeated command.  back: the seat has a ticket
-- from other nodes, or was lost here.
local left, mine = taken(key, owner)
local queued, ticket = not mine and call('PTTL', tickets) > 0, 0
local back = not mine and ARGV[7] ~= '0' and not (queued and call('ZSCORE', tickets, seat))
if queued then
  if back then  -- its seat was lost, and comes back to its position by its ticket
    sit(tickets, seats, seat, tonumber(ARGV[7]), ms, tonumber(ARGV[8]))
  end
  ahead = ahead_of(tickets, seats, seat, ms)
end
-- The lock is another's: wait for it, and for the head starts of the waiters ahead.  Or it is free: wait for what is
-- left of their head starts.
local wait = left > 0 and queued and left + ahead * start(seats, ms) or left
if queued and left == 0 then
  wait = head_start(seats, ahead, ms)
end
if wait ~= 0 then
  if seat ~= '' then
    ticket = sit(tickets, seats, seat, tonumber(ARGV[7]), ms, tonumber(ARGV[8]))
  end
  if left > 0 then
    free_since(seats, ms + left)
    if back then
      came_late(seats, ms)
    end
  end
  return {ARGV[#ARGV], 0, wait, us, ticket, ahead}
end
-- Ours: it is free, and the head starts of the waiters ahead are over.
local fence = 0
if ARGV[3] ~= '0' then
  fence = reading(call('GET', KEYS[2]), floor, ms)
end
if not mine then
  call('SET', key, owner, 'PX', ARGV[2])
  if ARGV[3] ~= '0' then
    local ballot = tonumber(ARGV[3])
    fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)))
    local stored = fence == ballot and ARGV[3] or fence  -- writing a double as text would take longer
    call('SET', KEYS[2], stored, 'PX', kept(fence, ms, ARGV[5]))
  end
  if queued then  -- the waiters ahead had their head start; those that live come back with their tickets
    for _, before in ipairs(ahead > 0 and call('ZRANGE', tickets, 0, ahead - 1) or {}) do
      leave(tickets, seats, before)
    end
    leave(tickets, seats, seat)
    call('ZREM', seats, 'free')
  end
end
return {ARGV[#ARGV], 1, fence, us, 0, 0}
