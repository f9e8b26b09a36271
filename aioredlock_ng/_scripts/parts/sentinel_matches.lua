-- Whether the sentinel is the one that the client expects (R12).  `me` is this server's identity where the client
-- cannot tell that its connection still leads to the same server, else empty.
local function sentinel_matches(key, expected, me)
  return expected ~= '' and redis.call('GET', key) == expected and (me == '' or me == identity())
end
