-- The functions of a kind for raise.lua, extend.lua and repair.lua: a mutex, also a fair one.
-- How many arguments the kind's scripts have of their own, and how many keys beside each lock and its counter.
local OWN, BESIDE = 0, 0
-- 1: the name is the owner's.  0: it is free.  -1: it is another owner's.  Or the error of another type.  A caller may ask
-- to tidy up as well: then the owner's other slots are dropped, of kinds that have slots.
local function holding(key, owner)
  local holder = owner_at(key)
  if type(holder) == 'table' then
    return holder
  end
  return holder == owner and 1 or holder and -1 or 0
end
-- Let a name that is the owner's live for at least ttl from now (R8).
local function lengthen(key, _, ttl)
  prolong(key, ttl)
end
-- Set a name that is free for the owner (R9).
local function restore(key, owner, ttl)
  redis.call('SET', key, owner, 'PX', ttl)
end
-- Raise the counters of n names to a fence (R10); false when one of them is not at the fence then.
local raise_counters = raise_all
