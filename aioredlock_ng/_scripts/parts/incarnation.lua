-- This server's process and the origin of its data: run_id and master_replid.  "-" when INFO is denied (R12).
local function info(section, name)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, name .. ':([^\r\n]*)')
end
local function identity()
  local run_id = info('server', 'run_id')
  return run_id and run_id .. (info('replication', 'master_replid') or '') or '-'
end
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
