-- The longer of two spans in ms, of which -1 is one without end.
local function longer(wait, other)
  return (wait == -1 or other == -1) and -1 or math.max(wait, other)
end
