-- The servers that clients use as the nodes of one quorum (R12c): a line for each, with the number of nodes and its identity,
-- since when it has been used, when a client last used it, both in ms by this node's clock, and that client's label.  A server
-- that is told as not used has a line of its own: that does not prolong the line of one that was.
local MOST, LONGEST = 32, 2 ^ 14  -- lines, and their bytes in all
local EACH, WAITS = 250, 10 ^ 15 - 1  -- ms for which a line is not written again, and see `members.WAITS`
-- Whether a line tells of a server that is not used; a client's heartbeat is none (see `members.pace`).
local function spare(line)
  return line[2] >= WAITS and not string.find(line[1], ':~', 1, true)
end
local function line_of(identity, since)
  return since < WAITS and identity or identity .. ' -'
end
-- Note what a client tells: of each server the identity, since when it has been used, and for how many ms it has not been used
-- any more, at the moment `at` by this node's clock, or 0 where the client does not know the clock.  A line is kept for `life`
-- ms after the last use.  Returns the lines.
local function members(key, told, at, label, ms, life)
  local stored = redis.pcall('GET', key)
  stored = type(stored) == 'string' and string.sub(stored, 1, LONGEST) or ''
  local lines, known, count, changed, pace = {}, {}, 0, false, 0
  for longest in string.gmatch(stored .. told, ':~(%d+) ') do
    pace = math.max(pace, math.min(tonumber(longest), life))
  end
  life = life + 2 * pace  -- a client tells so late that it has used a server
  for text in string.gmatch(stored, '[^\n]+') do
    local identity, since, seen, by = string.match(text, '^(%S+) (%d+) (%d+) (.*)$')
    seen = tonumber(seen or -life)
    if seen > ms then  -- the clock went back
      changed = true
    end
    if seen + life > ms and count < MOST then
      count = count + 1
      since = tonumber(since)
      lines[count] = {identity, since, math.min(seen, ms), by}
      known[line_of(identity, since)] = count
    end
  end
  local said = at > 0 and math.min(at, ms) or ms  -- a node that stood still hears it late
  for identity, since, age in string.gmatch(told, '(%S+) (%d+) (%d+)') do
    since = tonumber(since)
    local id, seen = line_of(identity, since), said - tonumber(age)
    local line = lines[known[id]]
    if not line then
      local place = count + 1
      if count == MOST then  -- in the place of one that is not used, or of the one that was told of least lately
        place = 1
        for i, other in ipairs(lines) do
          local least = lines[place]
          if spare(other) and not spare(least) or spare(other) == spare(least) and other[3] < least[3] then
            place = i
          end
        end
      end
      if lines[place] then
        known[line_of(lines[place][1], lines[place][2])] = nil
      end
      count = math.max(count, place)
      line = {identity, since, 0, label}
      lines[place], known[id] = line, place
    end
    if line[3] + EACH <= seen or since < line[2] then
      line[2], line[3], line[4], changed = math.min(line[2], since), math.max(line[3], seen), label, true
    end
  end
  local texts = {}
  for i, line in ipairs(lines) do
    texts[i] = string.format('%s %.0f %.0f %s\n', line[1], line[2], line[3], line[4])
  end
  local text = table.concat(texts)
  if changed then
    redis.pcall('SET', key, text, 'PX', math.ceil(life))
  end
  return text
end
