-- The fields of a record of our format: identity, floor, ready, size, quarantine, claim; nil for any other.
local function fields(record)
  return string.match(record, '^1:([^:]*):(%d+):(%d+):(%d+):(%d+):(%d+:%a+:.*)$')
end
-- How long a node grants nothing by its own clock, so that a quarantine has passed by any clock.
local function wait(span)
  return span > 0 and math.ceil(span * 101 / 100) + 10 or 0
end
-- The error of this node to a write now, empty where it would be executed: its memory is full, it lacks replicas, a right
-- is missing.  Found by a write that changes nothing; `there`: whether the key exists.
local function refusal(key, there)
  local said = redis.pcall('SET', key, '', there and 'NX' or 'XX')
  return type(said) == 'table' and said.err or ''
end
