-- What this server says of itself, to prove that it has forgotten nothing since it was started (R12b).
-- The commands after which locks may be missing, or that hide the calls of such a command.  Of CONFIG it is RESETSTAT;
-- old servers count all of CONFIG together.  PSYNC and SYNC: it has, or had, a replica, and FAILOVER may have made it the master.
local FORGETFUL = {flushall = true, flushdb = true, swapdb = true, debug = true, replicaof = true, slaveof = true,
  failover = true, psync = true, sync = true, config = 'resetstat'}
-- For how long nothing that was stored is missing, in ms: 0, and why, where it cannot tell.
local function remembers_for()
  local up = tonumber(info('server', 'uptime_in_seconds') or '')
  if not up then
    return 0, 'INFO does not tell its age'
  elseif info('server', '_mode') ~= 'standalone' then
    return 0, 'it is no stand-alone server'
  elseif info('stats', 'evicted_keys') ~= '0' then
    return 0, 'it has evicted keys'
  elseif not string.find(info('replication', 'master_replid2') or '', '^0+$')
    or info('replication', 'second_repl_offset') ~= '-1' then
    return 0, 'it was a replica'
  end
  local calls = redis.pcall('INFO', 'commandstats')
  if type(calls) ~= 'string' or not string.find(calls, 'cmdstat_info:', 1, true) then
    return 0, 'INFO does not tell which commands were called'
  end
  for command, sub, count in string.gmatch(calls, 'cmdstat_([^:|\r\n]+)|?([^:\r\n]*):calls=(%d+)') do
    local forgetful = FORGETFUL[command]
    if count ~= '0' and (forgetful == true or forgetful and (sub == '' or sub == forgetful)) then
      return 0, string.upper(sub == '' and command or command .. ' ' .. sub) .. ' was called'
    end
  end
  return math.max(0, up - 2) * 1000  -- the second of its start, and that of now, have begun
end
