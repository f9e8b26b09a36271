-- Who holds a lock, and for how long.
-- KEYS[1]  the lock
-- returns  {value, ms}: value is false when the lock is free; ms is -1 when there is no expiry
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
