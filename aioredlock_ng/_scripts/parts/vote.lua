-- Whether the incarnation record is the one that the client expects (R12).
local function incarnation_matches(key, expected)
  return expected ~= '' and redis.call('GET', key) == expected
end
