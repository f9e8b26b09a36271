-- What raise.lua, extend.lua and repair.lua ask of each kind: here of a mutex, also of a fair one.
-- How many arguments the kind's scripts have of their own, and how many keys beside each lock and its counter.
local OWN, BESIDE = 0, 0
-- 1: the name is the owner's.  0: it is free.  -1: it is another's.  Or the error of another type.  Where the caller
-- `tidies`, what the owner has beside it goes.
local function holding(key, owner)
  local holder = owner_at(key)
  if type(holder) == 'table' then
    return holder
  end
  return holder == owner and 1 or holder and -1 or 0
end
-- A name that is the owner's lives for at least ttl from now (R8).
local function lengthen(key, _, ttl)
  prolong(key, ttl)
end
-- A name that is free is the owner's (R9).
local function restore(key, owner, ttl)
  redis.call('SET', key, owner, 'PX', ttl)
end
-- Lift the counters of n names to a fence (R10); false when one of them does not stand there then.
local raise_counters = raise_all
