-- A client greets this node: which server it is, whether it may vote, and its time of day (R12, R14).
-- KEYS[1]  the incarnation record
-- KEYS[2]  the members of the quorum (R12c)
-- ARGV[1]  a nonce, returned behind the request id, so that the client knows the answer to its own greeting (R15)
-- ARGV[2]  how many nodes the client has; 0: it only reads, and no record is written
-- ARGV[3]  its quarantine, milliseconds
-- ARGV[4]  the incarnation record whose quarantine begins again, or which is another quorum's and has to go (R12a), if it is
--          still there; or empty
-- ARGV[5]  the floor for that
-- ARGV[6]  the claim to write where there is no incarnation record
-- ARGV[7]  the floor to which this one is lifted, as far as this node's clock allows, or 0
-- ARGV[8]  0; or, at the first use of a quorum, for how long in ms all its nodes are known to remember (R12b)
-- ARGV[9]  the servers that the client lists, for each the number of nodes and its identity, its state, for how long in ms it
--          has been there, how long ago it answered; or empty
-- ARGV[10] when the client says so, in ms by this node's clock as far as the client knows it, or 0
-- ARGV[11] the client's label
-- ARGV[12] the id of this request, with which the answer begins (R15)
-- returns  {id, ARGV[1], incarnation record or empty, µs, identity, role or empty, the error of a write or empty, why a node
--          that waits has to or empty, for how long in ms a node without a record is known to remember, the members}
local us, ms = clock()
local me, role = identity(), info('replication', 'role') or ''
local size, quarantine = tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = redis.call('GET', KEYS[1])
local refused = refusal(KEYS[1], stored)
local function answer(record)
  local server, _, ready, _, span = fields(record)
  local doubt, age = '', 0
  if record == '' then
    age = remembers_for()
  elseif server == me and tonumber(ready) > ms then
    local run, why = remembers_for()
    doubt = why or run < wait(tonumber(span)) and 'it has run for less than its quarantine' or ''
  end
  local life = math.max(wait(tonumber(span or 0)), wait(quarantine)) + 5000
  local used = members(KEYS[2], ARGV[9], tonumber(ARGV[10]), ARGV[11], ms, life)
  return {ARGV[12], ARGV[1], record, us, me, role, refused, doubt, age, used}
end
if size == 0 then
  return answer(stored or '')
end
local function written(server, floor, ready, span, claim)
  local value = string.format('1:%s:%.0f:%.0f:%.0f:%.0f:%s', server, floor, ready, size, span, claim)
  if value ~= stored then
    redis.call('SET', KEYS[1], value)
  end
  return answer(value)
end
local function floor_at(moment)
  return (moment + 12000) * 1024 + us % 1000
end
-- No record: the node is new, or has lost its data.  At a first use the record is dated back as far as all remember.
if not stored then
  local since = ms - math.min(tonumber(ARGV[8]), (remembers_for()))
  return written(me, floor_at(since), since + wait(quarantine), quarantine, ARGV[6])
end
local new_floor = floor_at(ms)
local server, floor, ready, known, span, claim = fields(stored)
-- Another version's record, or another quorum's: it stays as it is, unless the older quorum takes the node back.
if not server or tonumber(known) ~= size then
  if not server or stored ~= ARGV[4] then
    return answer(stored)
  end
  return written(me, math.max(new_floor, tonumber(floor)), ms + wait(quarantine), quarantine, ARGV[6])
end
floor, ready, span = tonumber(floor), tonumber(ready), tonumber(span)
local longest = math.max(quarantine, span)
local again = ms + wait(longest)
-- Another server's record: a restart or a failover, after which locks may be forgotten.
if me ~= '-' and me ~= server then
  return written(me, math.max(new_floor, floor), again, longest, claim)
end
floor = math.max(floor, math.min(tonumber(ARGV[7]), new_floor))
-- Its clock has jumped; or this client's quarantine is longer, and the node still waits.
if stored == ARGV[4] then
  floor, ready = math.max(floor, math.min(tonumber(ARGV[5]), new_floor)), again
elseif longest > span and ready > 0 then
  ready = ready + wait(longest) - wait(span)
end
if ready > again then  -- the clock went back, and counters may have ended while it was ahead
  floor, ready = math.max(new_floor, floor), again
end
return written(server, floor, ready, longest, claim)
