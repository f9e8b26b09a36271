-- An observer polls an election on this node (R32).
-- KEYS[1]  the lock
-- KEYS[2]  the announcement
-- KEYS[3]  the incarnation record
-- ARGV[1]  the record that the client expects
-- ARGV[2]  the floor in it
-- ARGV[3]  the id of this request, with which the answer begins (R15)
-- returns  {id, votes, held, announced}
--          votes      1: this node has a vote (R12); else 0
--          held       1: the lock's key exists; else 0
--          announced  term:label of the greatest term that was announced here, or empty
local votes = incarnation_matches(KEYS[3], ARGV[1]) and 1 or 0
local held = redis.call('PTTL', KEYS[1]) == -2 and 0 or 1
return {ARGV[3], votes, held, string.sub(redis.call('GET', KEYS[2]) or '', 1, 1024)}
