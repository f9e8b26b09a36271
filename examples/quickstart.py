"""Ten tasks add to one number under a lock, and none of their additions is lost.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/quickstart.py
"""

import asyncio
import os

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng.testing import local_nodes

TASKS = 10

total = 0


async def add(manager: LockManager) -> None:
    global total  # noqa: PLW0603 (what the lock protects)
    async with manager.lock("quickstart", ttl=5) as lease:
        seen = total
        await asyncio.sleep(0.01)  # time for another task to get in between, were it not for the lock
        lease.check()  # right before the write: is it still ours?
        total = seen + 1


async def show(manager: LockManager) -> None:
    await asyncio.gather(*(add(manager) for _ in range(TASKS)))
    print(f"{TASKS} tasks added 1 each: {total}")

    async with manager.lock("quickstart") as lease:
        print(lease)
        try:
            await asyncio.create_task(manager.lock("quickstart", blocking_timeout=0.2).acquire())
        except LockTakenError as error:
            print(f"another client: {error}")
    print(manager)


async def main() -> None:
    if os.environ.get("REDLOCK_URLS"):
        async with LockManager.from_env() as manager:
            await show(manager)
    else:
        async with local_nodes(5) as nodes, LockManager(nodes.urls) as manager:
            await show(manager)


if __name__ == "__main__":
    asyncio.run(main())
