-- The leader of an election announces the term that it has won.  The greatest term stays, whether or not this node
-- has a vote (R31).
-- KEYS[1]  the announcement, and the channel on which observers are notified of a new one
-- ARGV[1]  the term
-- ARGV[2]  the leader's label
-- ARGV[3]  how long an announcement lives, milliseconds
-- ARGV[4]  the id of this request, with which the answer begins (R15)
-- returns  {id, 1}: it is announced.  {id, 0}: a greater term is; nothing was changed.
local term = tonumber(ARGV[1])
local known = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):')) or 0
if known > term then
  return {ARGV[4], 0}
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2], 'PX', ARGV[3])
if known < term then
  redis.pcall('PUBLISH', KEYS[1], '')  -- where that is refused, observers poll all the same
end
return {ARGV[4], 1}
