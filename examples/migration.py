"""Coming from aioredlock, pottery or redis-py's Lock: what each call becomes.  docs/migration.md has a table.

All three write a plain string with a ttl under the lock's key, as we do.  With the right prefix, old and new
programs exclude each other while a migration is under way: aioredlock and redis-py's Lock use the name itself
as the key (``prefix=""``), pottery puts "redlock:" in front, which is the default here.

Until the last old program is gone, fences prove little, since the old ones make none, and so does the restart
quarantine, since they do not wait: `AS_THEY_DO` leaves both out, and sends the plain SET NX PX of the Redlock
page.  Then drop it, and run ``aioredlock-ng init`` once.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/migration.py
"""

import asyncio
import os
from typing import Any

from redis.asyncio import Redis

from aioredlock_ng import ExtensionPolicy, LockManager, LockTakenError
from aioredlock_ng.testing import local_nodes

AS_THEY_DO: dict[str, Any] = {"fencing": False, "restart_quarantine": 0}


async def from_aioredlock(urls: list[str]) -> None:
    # manager = Aioredlock([{"host": ..., "port": ...}, ...])
    async with LockManager(urls, prefix="", **AS_THEY_DO) as manager:  # ... await manager.destroy()
        # lock = await manager.lock("res", lock_timeout=10)   three tries, then LockError; never extended
        lease = await manager.lock(
            "res", ttl=10, blocking_timeout=1, extension=ExtensionPolicy.off()
        ).acquire()
        # lock.valid
        assert lease.held
        # await manager.extend(lock)
        await lease.extend()
        # await manager.is_locked("res")
        assert await manager.lock("res").locked()
        # await manager.unlock(lock)
        await lease.release()

        # async with await manager.lock("res") as lock:       extended for ever; a loss may go unnoticed
        async with manager.lock("res") as lease:
            lease.check()


async def from_pottery(urls: list[str]) -> None:
    # masters = {AIORedis.from_url(url) for url in urls}
    async with LockManager(urls, **AS_THEY_DO) as manager:
        # lock = AIORedlock(key="res", masters=masters, auto_release_time=10, num_extensions=3)
        lock = manager.lock("res", ttl=10, extension=ExtensionPolicy(max_extensions=3))
        # if await lock.acquire(blocking=False):
        if (lease := await lock.try_acquire()) is not None:
            # await lock.locked()                             seconds left, 0 when not locked
            assert lease.remaining > 0
            # await lock.extend()
            await lease.extend()
            # await lock.release()
            await lease.release()

        # @synchronize(key="res", masters=masters)            for threads only
        @manager.locked("res")
        async def work() -> None: ...

        await work()


async def from_redis_py(url: str) -> None:
    async with Redis.from_url(url) as redis:
        theirs = redis.lock("res", timeout=10)
        async with LockManager([url], prefix="", **AS_THEY_DO) as manager:  # rather three or five
            # lock = redis.lock("res", timeout=10, blocking_timeout=2)
            lock = manager.lock("res", ttl=10, blocking_timeout=2)
            # if await lock.acquire():                        False: taken
            lease = await lock.acquire()  # or LockTakenError
            # await lock.owned()
            assert lease.held
            # await lock.locked()
            assert await lock.locked()
            # await lock.reacquire()
            await lease.extend()
            # the old program, which still runs somewhere, does not get in …
            assert not await theirs.acquire(blocking=False)
            # await lock.release()
            await lease.release()

            # … and the new one not while the old one is in
            async with theirs:
                try:
                    await manager.lock("res", blocking=False).acquire()
                except LockTakenError as error:
                    print(f"redis-py's Lock holds it: free in {error.retry_after:.0f} s at the latest")


async def show(urls: list[str]) -> None:
    await from_aioredlock(urls)
    await from_pottery(urls)
    await from_redis_py(urls[0])
    print("every call has its counterpart")


async def main() -> None:
    if urls := os.environ.get("REDLOCK_URLS"):
        await show(urls.split(","))
    else:
        async with local_nodes(5) as nodes:
            await show(nodes.urls)


if __name__ == "__main__":
    asyncio.run(main())
