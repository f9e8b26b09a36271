-- The older quorum takes a node back that a stray client has used, and grants nothing for as long as a lock of the
-- other quorum may live (R12a).
-- KEYS[1]  the incarnation record; KEYS[2] the members of the quorum
-- ARGV[1]  a nonce, as in greet.lua
-- ARGV[2]  how many nodes the client has
-- ARGV[3]  its quarantine, milliseconds
-- ARGV[4]  the incarnation record that the client has seen: if another one is there, nothing is changed
-- ARGV[5]  the claim of the client's quorum
-- ARGV[6]  the pattern of all keys under the prefix
-- ARGV[7…] the marks of those keys that are no locks: counters, hints, announcements
-- ARGV[#ARGV]  the id of this request, with which the answer begins (R15)
-- returns  as greet.lua
local us, ms = clock()
local me, role = identity(), info('replication', 'role') or ''
local stored = redis.call('GET', KEYS[1])
local server, floor, _, _, span = fields(stored or '')
if stored ~= ARGV[4] or not server then
  return {ARGV[#ARGV], ARGV[1], stored or '', us, me, role, '', '', 0, ''}
end
-- Whether a key is neither the members' nor of the form prefix .. mark .. ':{' .. prefix .. name .. '}', where the prefix
-- may be a longer one (R16).
local function is_lock(key)
  for i = 7, #ARGV - 1 do
    local first, last = string.find(key, ARGV[i] .. ':{', 1, true)
    while first do
      local prefix = string.sub(key, 1, first - 1)
      if string.sub(key, last + 1, last + #prefix) == prefix and string.sub(key, -1) == '}' then
        return false
      end
      first, last = string.find(key, ARGV[i] .. ':{', first + 1, true)
    end
  end
  return key ~= KEYS[2]
end
-- The longest time in ms that a lock here still lives.  A day, the longest ttl of all, where keys cannot be listed or are
-- too many.
local function longest_ttl()
  local cursor, longest = '0', 0
  for _ = 1, 200 do
    local step = redis.pcall('SCAN', cursor, 'MATCH', ARGV[6], 'COUNT', 500)
    if step.err then
      return 86400000
    end
    for _, key in ipairs(step[2]) do
      if is_lock(key) then
        longest = math.max(longest, redis.call('PTTL', key))
      end
    end
    cursor = step[1]
    if cursor == '0' then
      return math.min(longest, 86400000)
    end
  end
  return 86400000
end
local quarantine = tonumber(ARGV[3])
local longest = math.max(quarantine, tonumber(span), longest_ttl())
local value = string.format('1:%s:%.0f:%.0f:%s:%s:%.0f:%s', me,
  math.max(tonumber(floor), (ms + 12000) * 1024 + us % 1000), ms + wait(quarantine), ARGV[2], ARGV[3],
  ms + wait(longest) + 2000, ARGV[5])
redis.call('SET', KEYS[1], value)
return {ARGV[#ARGV], ARGV[1], value, us, me, role, '', '', 0, ''}
