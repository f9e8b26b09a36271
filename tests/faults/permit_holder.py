"""Holds permits again and again, and keeps a record: ``python permit_holder.py ORDERS`` (JSON)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, Final

from aioredlock_ng import Lease, LockManager

NAME: Final = "pool"
INSIDE: Final = (0.002, 0.02)  # seconds with a permit, from the shortest to the longest


class Holder:
    """One process: several tasks that want permits."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._orders = orders
        self._goes_on = True
        self._turns: list[tuple[int | None, int, float, float]] = []

    async def run(self) -> None:
        """Begin at once; print the record when told to end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        urls, ttl = self._orders["urls"], self._orders["ttl"]
        async with LockManager(urls, ttl=ttl) as manager, asyncio.TaskGroup() as tasks:
            for _ in range(self._orders["tasks"]):
                tasks.create_task(self._work(manager))
        print(json.dumps(self._turns))

    def _stop(self) -> None:
        self._goes_on = False

    async def _work(self, manager: LockManager) -> None:
        while self._goes_on:
            async with manager.semaphore(NAME, permits=self._orders["permits"]) as lease:
                await self._hold(manager, lease)
            await asyncio.sleep(random.uniform(0.0, 0.003))

    async def _hold(self, manager: LockManager, lease: Lease) -> None:
        start = manager.clock.now()
        if self._orders["stays"]:
            print("inside", flush=True)
            await asyncio.Event().wait()
        mark = Path(self._orders["folder"]) / str(lease.slot)
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails where another one is in that slot
        await asyncio.sleep(random.uniform(*INSIDE))
        mark.unlink()
        end = min(manager.clock.now(), lease.valid_until)
        with Path(self._orders["folder"], "turns").open("ab", buffering=0) as turns:
            turns.write(b".")
        self._turns.append((lease.slot, lease.fence, start, end))


if __name__ == "__main__":
    asyncio.run(Holder(json.loads(sys.argv[1])).run())
