"""Takes locks, again and again, in a process of its own: ``python contender.py ORDERS`` (JSON)."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, RetryPolicy
from tests.faults.claims import Claim


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What one process is to do."""

    urls: list[str]
    names: list[str]  # one task for each
    quota: int  # it ends after so many claims, or when it is told to (SIGTERM)
    apart: float  # seconds that its clocks are ahead of the machine's
    inside: float  # seconds that a claim lasts
    retry: float  # seconds between two tries, at most
    idle: float  # seconds between two claims of a task, at most, so that other processes get their turn
    options: dict[str, Any]  # of its manager


# Seconds that the machine is taken to run already: the time that leases go by is never below 0.
BOOTED_BEFORE: Final = 10_000.0


@dataclass
class ClockApart:
    """The machine's clocks, so many seconds ahead."""

    seconds: float

    @property
    def ahead(self) -> float:
        """Seconds that `now` is ahead of `time.monotonic`."""
        return BOOTED_BEFORE + self.seconds

    def now(self) -> float:
        """Return the time that leases go by."""
        return time.clock_gettime(time.CLOCK_MONOTONIC) + self.ahead

    def wall(self) -> float:
        """Return the time of day."""
        return time.time() + self.seconds


class Contender:
    """Does what it is ordered, and keeps a record."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._clock = ClockApart(orders.apart)
        self._left = orders.quota
        self._claims: dict[str, list[Claim]] = {name: [] for name in orders.names}

    async def run(self) -> None:
        """Begin when told, and print the record at the end."""
        orders = self._orders
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        retry = RetryPolicy(cap=orders.retry)
        # Extensions would remind nodes of what they forgot, which is not what is looked for.
        off = ExtensionPolicy.off()
        async with LockManager(
            orders.urls, clock=self._clock, retry=retry, extension=off, **orders.options
        ) as manager:
            await self._knows_all_clocks(manager)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            async with asyncio.TaskGroup() as tasks:
                for name in orders.names:
                    tasks.create_task(self._contend(manager, name))
            did = manager.statistics()
        counts = {word: getattr(did, word) for word in ("certified", "raised", "uncertified", "lost")}
        print(json.dumps({"claims": self._claims, "counts": counts}))

    async def _knows_all_clocks(self, manager: LockManager) -> None:
        async with asyncio.timeout(60.0):
            while any(node.clock is None for node in manager.statistics().nodes):
                await asyncio.sleep(0.01)

    def _stop(self) -> None:
        self._left = 0

    async def _contend(self, manager: LockManager, name: str) -> None:
        lock = manager.lock(name)
        while self._left > 0:
            self._left -= 1
            asked = time.monotonic()
            try:
                async with lock as lease:
                    start = time.monotonic()
                    await asyncio.sleep(self._orders.inside)
                    end = min(time.monotonic(), lease.valid_until - self._clock.ahead)
                    self._claims[name].append(Claim(start, end, lease.fence or 0, asked))
            except LockLostError:
                pass  # it has been counted, and its claim ended in time
            await asyncio.sleep(random.random() * self._orders.idle)


if __name__ == "__main__":
    asyncio.run(Contender(Orders(**json.loads(sys.argv[1]))).run())
