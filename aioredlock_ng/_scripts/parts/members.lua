-- The servers that clients list as the nodes of one quorum (R12c): a line for each in each state (see `members.USED`), with the
-- number of nodes and its identity, the state, since when it has been there, when a client named it to this node first, when it
-- answered a client last, all in ms by this node's clock, and that client's label.
local MOST, LONGEST = 32, 2 ^ 14  -- lines, and their bytes in all
local EACH, BRIEF = 250, 5000  -- ms for which a line is not written again; for which one is kept of a server that is not used
-- Note what a client tells: of each server for how many ms it has been there, and how long ago it answered, at the moment `at`
-- by this node's clock, or 0 where the client does not know the clock.  The line of a server that is used is kept for `life`
-- ms after that.  Returns the lines.
local function members(key, listed, at, label, ms, life)
  local stored = redis.pcall('GET', key)
  stored = type(stored) == 'string' and string.sub(stored, 1, LONGEST) or ''
  local lines, known, changed = {}, {}, false
  local function used(line)
    return string.sub(line[1], -1) == 'u'
  end
  for text in string.gmatch(stored, '[^\n]+') do
    local server, stands, first, seen, by = string.match(text, '^(%S+ [uwn]) (%d+) (%d+) (%d+) (.*)$')
    local line = {server, tonumber(stands), tonumber(first), tonumber(seen), by}
    if server and line[4] > ms then  -- the clock went back: what was known by it is void
      line[2], line[3], line[4], changed = ms, ms, ms, true
    end
    if server and line[4] + (used(line) and life or BRIEF) > ms and #lines < MOST then
      lines[#lines + 1], known[server] = line, line
    end
  end
  local said = at > 0 and math.min(at, ms) or ms  -- a node that stood still hears it late
  for server, stood, age in string.gmatch(listed, '(%S+ [uwn]) (%d+) (%d+)') do
    local seen, line = said - tonumber(age), known[server]
    if not line then
      local place = #lines + 1
      if place > MOST then  -- in the place of one that is not used, or of the one that was listed least lately
        place = 1
        for i, other in ipairs(lines) do
          local least = lines[place]
          if used(least) and not used(other) or used(other) == used(least) and other[4] < least[4] then
            place = i
          end
        end
        known[lines[place][1]] = nil
      end
      line = {server, seen, ms, 0, label}
      lines[place], known[server] = line, line
    end
    line[2] = math.max(0, math.min(line[2], said - tonumber(stood)))
    if line[4] + EACH <= seen then
      line[4], line[5], changed = seen, label, true
    end
  end
  local texts = {}
  for i, line in ipairs(lines) do
    texts[i] = string.format('%s %.0f %.0f %.0f %s\n', line[1], line[2], line[3], line[4], line[5])
  end
  local text = table.concat(texts)
  if changed then
    redis.pcall('SET', key, text, 'PX', math.ceil(math.max(life, BRIEF)))
  end
  return text
end
