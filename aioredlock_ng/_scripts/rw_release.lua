-- Release the names that are ours, as a writer or as a reader, and return how long the others stay (R6, R22).
-- KEYS     n locks; with a fence their n counters; n queues
-- ARGV[1]  owner
-- ARGV[2]  the lease's fence, 0 without
-- ARGV[3]  how long a counter lives unused, milliseconds
-- ARGV[4]  1: a writer's release is published on the channel of the key's name, the last reader's on the channel of the
--          queue's name, to which writers listen.  Empty: none is
-- ARGV[5]  the mode: read or write
-- ARGV[6]  the seat of a call that waits no more, whose waiting flag is removed; left out where the call may wait on
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, released, wait, reached}, and where there are other owners {…, foreign} or {…, foreign, label}: as
--          release.lua.  Readers are not foreign, and have no label.
local call = redis.call
local n, owner, fence, loud, reads = #KEYS, ARGV[1], tonumber(ARGV[2]), ARGV[4] ~= '', ARGV[5] == 'read'
n = fence > 0 and n / 3 or n / 2
local queues = fence > 0 and 2 * n or n
local given, wait, reached, failure, foreign, other = 0, 0, 0, nil, nil, nil
local now = nil
local function ms()
  now = now or select(2, clock())
  return now
end
-- Remove our reader: 1 if it was there, else 0, or an error where the key is no set of readers.  The key then ends with
-- the last of the others; the second value is whether any of them still reads.
local function leave(key)
  local last = redis.pcall('ZREVRANGE', key, 0, 1)
  if last.err then
    return last, true
  elseif last[1] ~= owner then
    return call('ZREM', key, owner), true
  end
  local ends = last[2] and call('ZSCORE', key, last[2]) - ms()
  if not ends or ends < 0 then
    return call('DEL', key), false
  end
  call('PEXPIRE', key, math.max(ends, 1))
  return call('ZREM', key, owner), true
end
for i = 1, n do
  local key, queue, count, mine = KEYS[i], KEYS[queues + i], 0, true
  if #ARGV > 6 and redis.pcall('ZREM', queue, 'w' .. ARGV[6]) == 1 then
    tell(key)  -- readers need not wait for this writer any more
  end
  -- Try what the mode says first, so that no command fails in the usual case.  `gone`: how many readers were removed, or
  -- the error where the key is no set of readers.
  local gone, others, holder = 0, true, false
  if reads then
    gone, others = leave(key)
  end
  if not reads or type(gone) == 'table' then
    holder = redis.pcall('GET', key)
  end
  if not reads and type(holder) == 'table' then
    gone = holder
    if string.find(holder.err, 'WRONGTYPE', 1, true) then
      gone, others = leave(key)
    end
  end
  if gone == 1 then
    count = loud and not others and tell(queue) or 0
  elseif holder == owner then
    call('DEL', key)
    give_turn(queue)
    count = loud and tell(key) or 0
  else
    mine = false
  end
  if mine then
    given = given + 1
    if fence > 0 then  -- what fails here must not keep a lock from its release
      pcall(raise, KEYS[n + i], fence, 0, ms(), ARGV[3])
    end
  elseif type(gone) == 'table' and type(holder) == 'table' then
    failure = gone  -- the other names must still be released
  else
    local stays = call('PTTL', key)
    if stays == -1 then  -- also a set, where it is another program's
      wait = -1
    elseif holder then
      wait = longer(wait, math.max(stays, 1))
    end
    if call('PTTL', queue) > 0 then
      wait = longer(wait, reads and kept_out(queue, ms()) or not reads and marked(queue, 'turn', ms()))
    end
    if type(holder) == 'string' then
      foreign = foreign == 1 and 1 or is_foreign(holder)
      other = other or label(holder)
    end
    -- The number of waiters (R33): for a reader all that listen for a writer's release; for a writer the other writers,
    -- which alone listen for the last reader's.
    count = loud and listeners(reads and key or queue) or 0
  end
  reached = (reached == -1 or count == -1) and -1 or math.max(reached, count)
end
return failure or {ARGV[#ARGV], given, wait, reached, foreign, other}
