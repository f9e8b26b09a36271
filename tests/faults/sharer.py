"""Reads or writes a file under a read-write lock, again and again: ``python sharer.py ORDERS`` (JSON).

The file has one number twice.  A writer writes the next one into its halves, with a pause between them; a
reader reads them with a pause.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from aioredlock_ng import Lease, LockManager

DIGITS: Final = 12  # of each half

# Seconds between the halves, from the shortest to the longest.
INSIDE: Final = {"read": (0.005, 0.015), "write": (0.002, 0.006)}

AWAY: Final = (0.0005, 0.003)  # seconds until it comes again


class Turn(NamedTuple):
    """One turn of a reader or a writer; all times are of one clock, which the machine's processes share."""

    mode: str
    asked: float
    start: float
    end: float  # when it had done its work, or when its lease ended, if that was earlier
    fence: int
    number: int  # what it has read, or written


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What one process is to do."""

    urls: list[str]
    path: str
    mode: str
    stays: bool  # whether it stays inside with its first lock; else it ends when it is told to (SIGTERM)
    options: dict[str, Any]  # of its manager


def read(path: str) -> tuple[int, int]:
    """Return both halves of the file."""
    text = Path(path).read_text(encoding="ascii")
    return int(text[:DIGITS]), int(text[DIGITS:])


def fill(path: str) -> None:
    """Write the file for the first time."""
    Path(path).write_text("0" * DIGITS * 2, encoding="ascii")


class Sharer:
    """Does what it is ordered, and keeps a record."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._file = os.open(orders.path, os.O_RDWR)
        self._goes_on = True
        self._turns: list[Turn] = []

    async def run(self) -> None:
        """Begin when told, and print the record at the end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        async with LockManager(self._orders.urls, **self._orders.options) as manager:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            while self._goes_on:
                await self._take_turn(manager)
                await asyncio.sleep(random.uniform(*AWAY))
        print(json.dumps(self._turns))

    def _stop(self) -> None:
        self._goes_on = False

    async def _take_turn(self, manager: LockManager) -> None:
        mode, now = self._orders.mode, manager.clock.now
        lock, asked = manager.rwlock("file"), now()
        async with lock.read() if mode == "read" else lock.write() as lease:
            start = now()
            number = await (self._read() if mode == "read" else self._write(lease))
            self._turns.append(Turn(mode, asked, start, min(now(), lease.valid_until), lease.fence, number))

    async def _read(self) -> int:
        first = self._half(0)
        if self._orders.stays:
            print("inside", flush=True)
            await asyncio.Event().wait()
        await asyncio.sleep(random.uniform(*INSIDE["read"]))
        second = self._half(1)
        assert first == second, f"half-written: {first} and {second}"
        return first

    async def _write(self, lease: Lease) -> int:
        first, second = self._half(0), self._half(1)
        assert first == second, f"left half-written: {first} and {second}"
        text = b"%0*d" % (DIGITS, first + 1)
        os.pwrite(self._file, text, 0)
        await asyncio.sleep(random.uniform(*INSIDE["write"]))
        lease.check()
        os.pwrite(self._file, text, DIGITS)
        return first + 1

    def _half(self, number: int) -> int:
        return int(os.pread(self._file, DIGITS, number * DIGITS))


if __name__ == "__main__":
    asyncio.run(Sharer(Orders(**json.loads(sys.argv[1]))).run())
