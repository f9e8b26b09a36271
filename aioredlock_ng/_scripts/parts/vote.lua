-- This server's process and the origin of its data: run_id and master_replid.  "-" when INFO is denied (R12).
local function info(section, name)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, name .. ':([^\r\n]*)')
end
local function identity()
  local run_id = info('server', 'run_id')
  return run_id and run_id .. (info('replication', 'master_replid') or '') or '-'
end
-- Whether the incarnation record is the one that the client expects (R12).  `me` is this server's identity where the client
-- cannot know whether its connection still leads to the same server, else empty.
local function incarnation_matches(key, expected, me)
  return expected ~= '' and redis.call('GET', key) == expected and (me == '' or me == identity())
end
