"""One of the processes of ``chaos.py``: takes locks of all kinds, again and again, until its input ends.

    python -m tests.load.chaos_worker ORDERS

Each claim, each sample and all that must not be is a line of the record, which all processes append to.
Times are of the clock that leases go by, which the processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from aioredlock_ng import Lease, LockLostError, LockManager, LockNotAcquiredError
from tests.load.growth import descriptors, left_behind, own_objects, sample

TTL: Final = 3.0
QUARANTINE: Final = 4.0  # seconds: longer than any ttl, those of the other libraries included
NODE_TIMEOUT: Final = 0.2
CONNECT_TIMEOUT: Final = 3.0  # on a busy machine a connection through a proxy takes its time
WAIT: Final = 10.0  # seconds that a call waits for a lock at most
PERMITS: Final = 3
EVERY: Final = 10.0  # seconds between two samples

Act: TypeAlias = "Callable[[Worker], Coroutine[Any, Any, None]]"

SHARED: Final = ("shared:0", "shared:1")  # plain mutexes that the other libraries take, too


def sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += str(fd.readlink()).startswith("socket:")
    return found


class Worker:
    """One process's tasks, and the record of what they held."""

    def __init__(self, number: int, urls: list[str], record: str) -> None:
        options: dict[str, Any] = {"ttl": TTL, "restart_quarantine": QUARANTINE, "node_timeout": NODE_TIMEOUT}
        options["connect_timeout"] = CONNECT_TIMEOUT
        options["holder"] = f"process {number}"
        self.fenced = LockManager(urls, **options)
        self.plain = LockManager(urls, fencing=False, **options)
        self.now = self.fenced.clock.now
        self._number = number
        self._record = os.open(record, os.O_WRONLY | os.O_APPEND)
        self._counts: Counter[str] = Counter()  # of losses and refusals
        self._numbers = itertools.count()
        self._over = False

    async def run(self) -> None:
        """Work until the input ends."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._complain)
        end = loop.create_task(asyncio.to_thread(sys.stdin.read))
        before = asyncio.all_tasks(), own_objects(), descriptors()
        async with self.fenced, self.plain:
            tasks = [
                loop.create_task(self._again(act)) for act, number in ACTS.items() for _ in range(number)
            ]
            while not end.done():
                found = sample() | {"threads": threading.active_count(), "sockets": sockets()}
                found["blocks"] = sys.getallocatedblocks()
                self.write("sample", self.now(), found, self._counts)
                await asyncio.wait((end,), timeout=EVERY)
            self._over = True
            _, late = await asyncio.wait(tasks, timeout=6 * WAIT)
            for task in late:
                self.write("stray", f"does not end: {task!r}")
        del self.fenced, self.plain, tasks, late
        if left := await left_behind(*before):
            self.write("stray", f"closed managers have left {left}")

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        text = "".join(traceback.format_exception(error)) if (error := context.get("exception")) else ""
        self.write("stray", f"{context!r} {text}")

    def write(self, what: str, *facts: object) -> None:
        """Append a line, in one piece."""
        os.write(self._record, json.dumps([what, self._number, *facts]).encode() + b"\n")

    async def _again(self, act: Act) -> None:
        while not self._over:
            await pause(0.3)
            try:
                await act(self)
            except LockLostError as error:
                self._counts[f"lost: {error.reason}"] += 1
            except LockNotAcquiredError as error:
                self._counts[f"not acquired: {type(error).__name__}"] += 1
            except Exception as error:  # noqa: BLE001 (it is what the record is for)
                self.write("stray", f"{act.__name__}: {error!r}")

    @contextlib.contextmanager
    def claim(self, kind: str, asked: float, lease: Lease) -> Iterator[None]:
        """Record the block as a claim: it ends with the lease, if that ends earlier."""
        since = self.now()
        try:
            yield
        finally:
            until = min(self.now(), lease.valid_until)
            held = lease._holding  # without a fence or a slot the public properties raise
            self.write(
                "claim", kind, since, until, asked, lease.names, held.fence or None, held.slot, id(lease)
            )


async def pause(seconds: float) -> None:
    """Do something else for a while."""
    await asyncio.sleep(random.uniform(0, seconds))


def holding(kind: str, describe: Callable[[Worker], Any], hold: float) -> Act:
    """Return what holds a lock for up to `hold` seconds."""

    async def act(worker: Worker) -> None:
        asked = worker.now()
        async with describe(worker) as held:
            # A leadership tells of no end: its lease does.
            with worker.claim(kind, asked, getattr(held, "_lease", held)):
                await pause(hold)

    act.__name__ = kind
    return act


async def reenter(worker: Worker) -> None:
    """Go into a reentrant lock twice."""
    lock = worker.fenced.lock(f"again:{random.randrange(3)}", reentrant=True, blocking_timeout=WAIT)
    asked = worker.now()
    async with lock as lease:
        with worker.claim("reentrant", asked, lease):
            async with lock as inner:
                await pause(0.02)
                assert inner.fence == lease.fence
            lease.check()


async def downgrade(worker: Worker) -> None:
    """Write, and go on as a reader."""
    asked = worker.now()
    async with worker.fenced.rwlock(f"file:{random.randrange(3)}", blocking_timeout=WAIT).write() as lease:
        with worker.claim("write", asked, lease):
            await pause(0.02)
        with worker.claim("read", asked, lease):
            await lease.downgrade()
            await pause(0.02)


async def extend(worker: Worker) -> None:
    """Hold for several ttls: the watchdog extends, and so does the task."""
    asked = worker.now()
    async with worker.fenced.lock(f"long:{random.randrange(8)}", ttl=1.5, blocking_timeout=WAIT) as lease:
        with worker.claim("long", asked, lease):
            for _ in range(4):
                await pause(2.0)
                await lease.extend()


async def loses(worker: Worker) -> None:
    """Lose a lease: its keys are gone."""
    name, asked = f"lost:{random.randrange(8)}", worker.now()
    async with worker.fenced.lock(name, ttl=1.5, blocking_timeout=WAIT) as lease:
        with worker.claim("lost", asked, lease):
            await pause(0.1)
        await worker.fenced.force_release(name)
        await asyncio.sleep(5.0)


async def cancel(worker: Worker) -> None:
    """Be cancelled, wherever that strikes."""
    task: asyncio.Task[None] = asyncio.create_task(random.choice((MUTEX, SEVERAL, FAIR, READ))(worker))
    await pause(random.choice((0.005, 0.05, 0.5)))
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()


MUTEX = holding("mutex", lambda w: w.fenced.lock(f"mutex:{random.randrange(3)}", blocking_timeout=WAIT), 0.02)
SEVERAL = holding(
    "several names",
    lambda w: w.fenced.lock(*{f"warm:{random.randrange(9)}" for _ in range(3)}, blocking_timeout=WAIT),
    0.02,
)
FAIR = holding(
    "fair", lambda w: w.fenced.lock(f"fair:{random.randrange(2)}", fair=True, blocking_timeout=WAIT), 0.02
)
READ = holding(
    "read", lambda w: w.fenced.rwlock(f"file:{random.randrange(3)}", blocking_timeout=WAIT).read(), 0.04
)
PLAIN = holding("plain", lambda w: w.plain.lock(random.choice(SHARED), blocking_timeout=WAIT), 0.02)
# A fenced lock of those names, too: the key excludes, by either kind of client.
MIXED = holding("mutex", lambda w: w.fenced.lock(random.choice(SHARED), blocking_timeout=WAIT), 0.02)
ONCE = holding("mutex", lambda w: w.fenced.lock(f"once:{w._number}:{next(w._numbers)}"), 0.02)
PERMIT = holding(
    "semaphore", lambda w: w.fenced.semaphore("pool", permits=PERMITS, blocking_timeout=WAIT), 0.1
)
LEAD = holding("election", lambda w: w.fenced.election("scheduler", blocking_timeout=WAIT).campaign(), 4.0)

# Each kind of work, and how many tasks of a process do it.
ACTS: Final = {
    **dict.fromkeys((MUTEX, FAIR, READ, PERMIT, PLAIN), 2),
    **dict.fromkeys((MIXED, ONCE, SEVERAL, LEAD, reenter, downgrade, extend, loses, cancel), 1),
}

if __name__ == "__main__":
    logging.disable()  # nodes go down and leases are lost all the time
    asyncio.run(Worker(**json.loads(sys.argv[1])).run())
