"""Stands in line for a fair lock again and again: ``python fair_worker.py ORDERS`` (JSON)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from aioredlock_ng import Lease, LockManager

NAME: Final = "printer"
INSIDE: Final = 0.01  # seconds of a turn


class Worker:
    """One process that wants the lock all the time, or holds it for ever."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._orders = orders
        self._goes_on = True

    async def run(self) -> None:
        """Begin at once, until told to end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        label, ttl = self._orders["label"], self._orders["ttl"]
        async with LockManager(self._orders["urls"], holder=label, ttl=ttl, node_timeout=0.5) as manager:
            while self._goes_on:
                async with manager.lock(NAME, fair=True) as lease:
                    await self._hold(lease)

    def _stop(self) -> None:
        self._goes_on = False

    async def _hold(self, lease: Lease) -> None:
        if self._orders["stays"]:  # it is going to be killed, and leaves no mark
            print("inside", flush=True)
            await asyncio.Event().wait()
        mark = Path(self._orders["folder"]) / "inside"
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails where another one is inside
        await asyncio.sleep(INSIDE)
        with Path(self._orders["folder"], "turns").open("ab", buffering=0) as turns:
            turns.write(f"{self._orders['label']} {lease.fence}\n".encode())
        mark.unlink()


if __name__ == "__main__":
    asyncio.run(Worker(json.loads(sys.argv[1])).run())
