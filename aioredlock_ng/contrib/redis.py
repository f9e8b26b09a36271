"""A value in Redis that refuses holders whose lock has gone to another one: their fence is the smaller one.

    async with manager.lock("report") as lease:
        if not await guarded_set(redis, "report", text, lease.fence):
            ...                                 # a later holder was here, and nothing was written

`redis` is where the value lives, any client of redis.asyncio.  The key is a hash of `value` and `fence`, so
that neither is there without the other: read it by ``await redis.hget("report", "value")``.  A write
by other means is not guarded; after a plain SET the next guarded write is an error (WRONGTYPE).

What depends on what was read needs a `claim` before the reading.  Otherwise an earlier holder's write may
come in between, and be overwritten by a holder that has not seen it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final, Protocol

__all__ = ["claim", "guarded_set"]

_MAX_FENCE: Final = 2**53
"""From here on a number of Lua's is not exact; `lease.fence` gets there in about 2250 (R11)."""

_SCRIPT: Final = """\
-- KEYS[1]  a hash
-- ARGV[1]  fence
-- ARGV[2]  value; without one only the fence is noted
-- ARGV[3]  ttl, milliseconds; without one the key stays
-- returns  1: done.  0: a greater fence was here, nothing was changed.
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'value', ARGV[2])
  if ARGV[3] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  else
    redis.call('PERSIST', KEYS[1])
  end
end
return 1
"""


class _RedisClient(Protocol):
    """The part of a client that is used: `redis.asyncio.Redis` and `RedisCluster` have it."""

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Awaitable[Any]:
        """Run a Lua script."""


async def guarded_set(
    client: _RedisClient,
    key: str | bytes,
    value: str | bytes | float,
    fence: int,
    *,
    ttl: float | timedelta | None = None,
) -> bool:
    """Write `value`, unless a holder with a greater fence was here; the same holder may write again.

    Args:
        client: Where the value lives, not necessarily a node of the lock.
        key: A hash with the fields `value` and `fence`.
        value: What to write.
        fence: `lease.fence`.
        ttl: Seconds until Redis forgets value *and fence*, None for never.  A holder that comes back later
            than that is not refused, so it must be longer than any holder may stand still.

    Returns:
        Whether it was written.  False is the proof that the lock was lost.

    Raises:
        ValueError: `fence` or `ttl` is out of range.
    """
    if ttl is None:
        return await _run(client, key, fence, value)
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if not seconds >= 0.001:  # noqa: PLR2004 (a millisecond); also refuses NaN
        raise ValueError(f"ttl must be 1 ms or more, not {ttl!r}")
    return await _run(client, key, fence, value, int(seconds * 1000))


async def claim(client: _RedisClient, key: str | bytes, fence: int) -> bool:
    """Refuse older fences from here on; what is read after that, no earlier holder changes any more.

    Args:
        client: Where the value lives.
        key: As in `guarded_set`; its value and its ttl stay what they are.
        fence: `lease.fence`.

    Returns:
        Whether it is ours.  False is the proof that the lock was lost.

    Raises:
        ValueError: `fence` is out of range.
    """
    return await _run(client, key, fence)


async def _run(client: _RedisClient, key: str | bytes, fence: int, *written: Any) -> bool:
    if not 0 <= fence < _MAX_FENCE:
        raise ValueError(f"fence must be between 0 and {_MAX_FENCE - 1}, not {fence!r}")
    # EVAL: one round trip also after a restart of the server, for some 500 bytes.
    return bool(await client.eval(_SCRIPT, 1, key, fence, *written))
