-- Set our keys again on a node that lost them, after a round that was won (R9); also on a node in quarantine.  One script
-- for each kind, by its part: mutex, readers, slots.
-- KEYS     n locks; with a fence their n counters; of readers and writers n queues
-- ARGV[1]  owner
-- ARGV[2]  ttl, milliseconds, > 0
-- ARGV[3]  the lease's fence, 0 without
-- ARGV[4]  how long a counter lives unused, milliseconds
-- ARGV[5]  the kind's own argument, if it has one, as in extend.lua
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  {id, 0}: all names are ours and live at least ttl.  {id, -1}: a name is another owner's; nothing was changed
--          but for readers that have ended.  A node that missed a downgrade, and has the key of the writer that its
--          owner was, makes it the reader's.
local owner, ttl, fence, own = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
local _, ms = clock()
local n = #KEYS / (1 + BESIDE + math.min(fence, 1))
local missing, tills, beside = {}, {}, fence > 0 and 2 * n or n
for i = 1, n do
  local found, till = holding(KEYS[i], owner, ms, own, true)
  if type(found) == 'table' then
    return found
  elseif found == -1 then
    return {ARGV[#ARGV], -1}
  end
  missing[i], tills[i] = found == 0, till
end
for i = 1, n do
  if missing[i] then
    restore(KEYS[i], owner, ttl, ms, own)
  else
    lengthen(KEYS[i], owner, ttl, ms, own, tills[i], KEYS[beside + i])
  end
end
if fence > 0 then
  raise_counters(n, fence, 0, ms, ARGV[4], own)
end
return {ARGV[#ARGV], 0}
