-- The servers that clients use as the nodes of one quorum (R12c): a line for each, with the number of nodes and its identity,
-- since when it has been used, when a client last said so, both in ms by this node's clock, and that client's label.
local MOST, EACH = 32, 1000  -- lines, and ms for which a line is not written again
-- Note what a client tells: of each server it uses the identity and since when, 0 for unknown.  A line is kept for `life` ms
-- after it was last said.  Returns the lines.
local function members(key, told, label, ms, life)
  local stored = redis.pcall('GET', key)
  local lines, known, count, changed = {}, {}, 0, false
  for identity, since, seen, by in string.gmatch(type(stored) == 'string' and stored or '', '(%S+) (%d+) (%d+) ([^\n]*)\n') do
    if tonumber(seen) > ms then  -- the clock went back
      changed = true
    end
    if tonumber(seen) + life > ms then
      count = count + 1
      lines[count], known[identity] = {identity, tonumber(since), math.min(tonumber(seen), ms), by}, count
    end
  end
  for identity, since in string.gmatch(told, '(%S+) (%d+)') do
    since = tonumber(since) > 0 and tonumber(since) or ms
    local line = lines[known[identity]]
    if not line then
      local place = count + 1
      if count == MOST then  -- in the place of the one that was told of least lately
        place = 1
        for i, other in ipairs(lines) do
          place = other[3] < lines[place][3] and i or place
        end
      end
      if lines[place] then
        known[lines[place][1]] = nil
      end
      count = math.max(count, place)
      line = {identity, since, 0, label}
      lines[place], known[identity] = line, place
    end
    if line[3] + EACH <= ms or since < line[2] then
      line[2], line[3], line[4], changed = math.min(line[2], since), ms, label, true
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
