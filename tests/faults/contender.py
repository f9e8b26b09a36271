"""Takes locks, again and again, in a process of its own: ``python contender.py ORDERS`` (JSON).

Each claim is a line of the record, which all processes write.  Readers and writers may share a file that has
one number twice: a writer writes the next one into its halves, with a pause between them; a reader reads
them with a pause.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from aioredlock_ng import ExtensionPolicy, Lease, Lock, LockLostError, LockManager, RetryPolicy
from tests.faults.claims import Claim


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The orders of one process."""

    number: int  # its own
    urls: list[str]
    record: str
    names: list[str]  # one task for each
    kind: str  # "lock", "fair", "read", "write", or how many permits there are
    path: str  # of the file that readers and writers share, if they do
    quota: int  # it ends after this many claims, or by SIGTERM
    stays: bool  # whether it stays inside with its first lock
    apart: float  # seconds that its clocks are ahead of the machine's
    inside: float  # seconds that a claim lasts
    retry: float  # seconds between two tries, at most
    idle: float  # seconds between two claims of a task, at most, so that other processes get their turn
    options: dict[str, Any]  # of its manager


# Seconds that the machine is taken to run already: the time that leases go by is never below 0.
BOOTED_BEFORE: Final = 10_000.0

DIGITS: Final = 12  # of each half of the file


@dataclass
class ClockApart:
    """The machine's clocks, some seconds ahead."""

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
        self._record = os.open(orders.record, os.O_WRONLY | os.O_APPEND)
        self._file = os.open(orders.path, os.O_RDWR) if orders.path else None

    async def run(self) -> None:
        """Begin at the order, and print what the manager counted at the end."""
        orders = self._orders
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        # Extensions would remind nodes of what they forgot, which is not what is looked for.
        policy = ExtensionPolicy() if orders.stays else ExtensionPolicy.off()
        retry = RetryPolicy(cap=orders.retry)
        async with LockManager(
            orders.urls, clock=self._clock, retry=retry, extension=policy, **orders.options
        ) as manager:
            async with asyncio.timeout(60.0):  # until it knows all clocks
                while any(node.clock is None for node in manager.statistics().nodes):
                    await asyncio.sleep(0.01)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            async with asyncio.TaskGroup() as tasks:
                for name in orders.names:
                    tasks.create_task(self._contend(name, self._lock(manager, name)))
            did = manager.statistics()
        print(
            json.dumps({word: getattr(did, word) for word in ("certified", "raised", "uncertified", "lost")})
        )

    def _stop(self) -> None:
        self._left = 0

    def _lock(self, manager: LockManager, name: str) -> Lock:
        match self._orders.kind:
            case "lock" | "fair" as kind:
                return manager.lock(name, fair=kind == "fair")
            case "read" | "write" as mode:
                return getattr(manager.rwlock(name), mode)()  # type: ignore[no-any-return]
        return manager.semaphore(name, permits=int(self._orders.kind))

    async def _contend(self, name: str, lock: Lock) -> None:
        while self._left > 0:
            self._left -= 1
            asked = time.monotonic()
            try:
                async with lock as lease:
                    start = time.monotonic()
                    if self._orders.stays:
                        print("inside", flush=True)
                        await asyncio.Event().wait()
                    number = await self._work(lease)
                    end = min(time.monotonic(), lease.valid_until - self._clock.ahead)
                    mode, holding = self._orders.kind if lease.mode else "lock", lease._holding
                    claim = Claim(start, end, holding.fence, asked, mode, holding.slot, number)  # type: ignore[arg-type]
                    os.write(self._record, json.dumps([self._orders.number, name, claim]).encode() + b"\n")
            except LockLostError:
                pass  # it has been counted, and its claim ended in time
            await asyncio.sleep(random.random() * self._orders.idle)

    async def _work(self, lease: Lease) -> int:
        if self._file is None:
            await asyncio.sleep(self._orders.inside)
            return 0
        before = self._half(0)
        after = before + (self._orders.kind == "write")
        assert self._half(1) == before, "left half-written"
        text = b"%0*d" % (DIGITS, after)
        if after > before:
            os.pwrite(self._file, text, 0)
        await asyncio.sleep(random.uniform(0.5, 1.5) * self._orders.inside)
        if after > before:
            lease.check()
            os.pwrite(self._file, text, DIGITS)
        assert self._half(0) == self._half(1) == after, "half-written"
        return after

    def _half(self, number: int) -> int:
        assert self._file is not None
        return int(os.pread(self._file, DIGITS, number * DIGITS))


if __name__ == "__main__":
    asyncio.run(Contender(Orders(**json.loads(sys.argv[1]))).run())
