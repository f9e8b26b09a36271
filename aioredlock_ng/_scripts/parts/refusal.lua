-- What this node says to a write now, empty where it would be done: its memory is full, it lacks replicas, a right is
-- missing.  Asked by a write that changes nothing; `there`: the key is.
local function refusal(key, there)
  local said = redis.pcall('SET', key, '', there and 'NX' or 'XX')
  return type(said) == 'table' and said.err or ''
end
