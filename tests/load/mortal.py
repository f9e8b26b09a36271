"""Takes permits until it is killed: ``python -m tests.load.mortal ORDERS`` (JSON)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import Any, Final

from aioredlock_ng import LockManager
from aioredlock_ng.errors import LockError

NAME: Final = "pool"

INSIDE: Final = (0.0, 0.03)  # seconds with a permit, from the shortest to the longest


async def run(orders: dict[str, Any]) -> None:
    """Work with several tasks; each turn is told in two lines, each of which is written at once."""
    record = os.open(orders["record"], os.O_WRONLY | os.O_APPEND)

    async def work(manager: LockManager) -> None:
        while True:
            try:
                async with manager.semaphore(NAME, permits=orders["permits"]) as lease:
                    slot, fence, start = lease.slot, lease.fence, manager.clock.now()
                    os.write(record, f"began {slot} {fence} {start!r}\n".encode())
                    await asyncio.sleep(random.uniform(*INSIDE))
                    end = min(manager.clock.now(), lease.valid_until)
                    os.write(record, f"ended {slot} {fence} {end!r}\n".encode())
            except LockError:
                await asyncio.sleep(0.01)

    async with LockManager(orders["urls"], ttl=orders["ttl"]) as manager, asyncio.TaskGroup() as tasks:
        print("ready", flush=True)
        for _ in range(orders["tasks"]):
            tasks.create_task(work(manager))


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
