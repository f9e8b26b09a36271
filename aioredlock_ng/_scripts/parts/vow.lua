-- Whether the sentinel is the one that the client vowed by (R12).  `expected` is this server's identity where
-- the client cannot tell that its connection still leads to the same server, else empty.
local function vouched(sentinel, vow, expected)
  return vow ~= '' and redis.call('GET', sentinel) == vow and (expected == '' or expected == identity())
end
