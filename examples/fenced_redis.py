"""An account in Redis that takes no write from a holder whose lock has gone to another one.

A process is frozen past its ttl between its reading and its writing.  Ends with 0 only if that is refused.
Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over three local ones of its own.  The Redis
with the account is one more, which knows nothing of the lock:

    python examples/fenced_redis.py
"""

import asyncio
from dataclasses import dataclass

from _frozen_holder import show
from redis.asyncio import Redis

from aioredlock_ng.contrib.redis import claim, guarded_set
from aioredlock_ng.testing import local_nodes


@dataclass
class Account:
    """One account; `_frozen_holder.py` deposits to it."""

    url: str
    key: str = "account:1"

    async def read(self, fence: int) -> int | None:
        """Return the balance, and refuse older fences from here on; None if this one is older."""
        async with Redis.from_url(self.url) as redis:
            # A holder that reads in order to write claims first: no earlier holder changes what is read.
            if not await claim(redis, self.key, fence):
                return None
            return int(await redis.hget(self.key, "value"))

    async def write(self, balance: int, fence: int) -> bool:
        """Return whether it was written."""
        async with Redis.from_url(self.url) as redis:
            # False: a greater fence was here, so the lock was lost, whatever its holder believes.
            return await guarded_set(redis, self.key, balance, fence)


async def main() -> None:
    async with local_nodes(1) as bank:
        account = Account(bank.urls[0])
        await account.write(100, fence=0)
        await show(account)


if __name__ == "__main__":
    asyncio.run(main())
