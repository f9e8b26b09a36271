-- Around each script of a master in memory: what a server gives it, and takes from it (`_memory_lua.py`).

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

-- To Lua's own `pcall` an error is a text, also that of a command.
local function as_text(done, reply, ...)
  if not done and type(reply) == 'table' then
    return done, reply.err
  end
  return done, reply, ...
end

-- The globals of all scripts, which none can change.
local globals = {
  pcall = function(...)
    return as_text(pcall(...))
  end,
}
for _, name in ipairs({'assert', 'error', 'ipairs', 'next', 'pairs', 'select', 'tonumber', 'tostring', 'type', 'unpack'}) do
  globals[name] = _G[name]
end
for _, name in ipairs({'math', 'string', 'table'}) do
  globals[name] = setmetatable({}, {__index = _G[name], __newindex = refuse})
end
local protected = setmetatable({}, {
  __index = function(_, name)
    if globals[name] == nil then
      error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
    end
    return globals[name]
  end,
  __newindex = refuse,
})

-- A function of KEYS, ARGV and `redis`; or nil and why the source is no script.
local function compile(source)
  local make, failure = loadstring('return function(KEYS, ARGV, redis) ' .. source .. '\nend', '@user_script')
  if not make then
    return nil, failure
  end
  local script = make()
  setfenv(script, protected)
  return script
end

-- What scripts of one master have as `redis`; `execute` returns an error as a table.
local function bind(execute)
  local function call(...)
    local reply = execute(...)
    if type(reply) == 'table' and reply.err then
      error(reply, 0)
    end
    return reply
  end
  return {call = call, pcall = execute}
end

-- Run a script, of whose words the first `keys` are the keys.
-- returns  an error or nil, a status or nil, whether it is an array, and its parts or the one value
local function run(script, redis, keys, ...)
  local words, KEYS, ARGV = {...}, {}, {}
  for i = 1, keys do
    KEYS[i] = words[i]
  end
  for i = keys + 1, #words do
    ARGV[i - keys] = words[i]
  end
  local done, reply = pcall(script, KEYS, ARGV, redis)
  if type(reply) ~= 'table' then
    if not done then
      return 'ERR ' .. tostring(reply), nil, false
    end
    return nil, nil, false, reply
  end
  if reply.err or reply.ok then
    return reply.err, reply.ok, false
  end
  return nil, nil, true, unpack(reply)
end

return compile, bind, run
