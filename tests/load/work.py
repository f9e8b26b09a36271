"""The load: what tasks of an application do with locks, all at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from aioredlock_ng import Lease, LockError, LockLostError, LockManager, LockNotAcquiredError
from aioredlock_ng.testing import LocalNodes, lose
from tests.load.claims import Claims

TTL: Final = 2.0
QUARANTINE: Final = 2.0  # seconds: as short as the ttl allows, so that restarted nodes soon vote again

HOT: Final = ("hot:a", "hot:b", "hot:c")
WARM: Final = 64  # names that are wanted now and then, by one or two at a time


@dataclass(kw_only=True)
class Mill:
    """Nodes, managers, and what is known of the run."""

    nodes: LocalNodes
    managers: list[LockManager]
    claims: Claims
    random: Random
    over: bool = False
    # What must not be: exceptions outside the documented ones, and what the loop complains of.
    stray: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    kept: list[Any] = field(default_factory=list)  # what a deliberate leak keeps

    async def work(self, worker: Worker) -> None:
        """Do one thing again and again; every error of a lock is life, anything else is not."""
        while not self.over:
            manager = self.random.choice(self.managers)
            try:
                await worker.act(self, manager)
            except LockLostError as error:
                self.claims.counts[f"lost: {error.reason}"] += 1
            except LockNotAcquiredError as error:
                self.claims.counts[type(error).__name__] += 1
                await self.pause(0.02)
            except LockError as error:
                self.stray.append(repr(error))

    async def pause(self, seconds: float) -> None:
        """Do something else for a while."""
        await asyncio.sleep(self.random.uniform(0, seconds))


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One kind of work, and how many tasks do it."""

    act: Callable[[Mill, LockManager], Awaitable[None]]
    tasks: int


async def hot(mill: Mill, manager: LockManager) -> None:
    """Hold a name that all tasks want, for a moment."""
    async with manager.lock(mill.random.choice(HOT), blocking_timeout=5.0) as lease:
        with mill.claims.claim(lease):
            await mill.pause(0.004)


async def distinct(mill: Mill, manager: LockManager) -> None:
    """Lock a name that was never used, and never will be again."""
    async with manager.lock(f"one:{next(mill.numbers)}", blocking_timeout=5.0) as lease:
        with mill.claims.claim(lease):
            await mill.pause(0.02)


async def several(mill: Mill, manager: LockManager) -> None:
    """Lock some names at once, all or nothing."""
    names = {f"warm:{mill.random.randrange(WARM)}" for _ in range(3)}
    async with manager.lock(*names, blocking_timeout=2.0) as lease:
        with mill.claims.claim(lease):
            await mill.pause(0.02)


async def cancelled(mill: Mill, manager: LockManager) -> None:
    """Be cancelled, wherever that strikes: while waiting, while asking, inside, or while leaving."""
    act = mill.random.choice([hot, distinct, several])
    task = asyncio.create_task(act(mill, manager))  # type: ignore[arg-type]
    await mill.pause(mill.random.choice([0.002, 0.02, 0.2]))
    task.cancel()
    await asyncio.wait((task,))
    mill.claims.counts["cancelled"] += task.cancelled()
    if not task.cancelled():
        task.result()


async def long(mill: Mill, manager: LockManager) -> None:
    """Hold for several ttls; the watchdog extends, and so do we."""
    async with manager.lock(f"long:{next(mill.numbers)}", ttl=mill.random.choice([1.0, TTL])) as lease:
        with mill.claims.claim(lease):
            for _ in range(4):
                await mill.pause(1.0)
                await lease.extend()
        mill.claims.counts["extensions"] += lease.extensions


async def loses(mill: Mill, manager: LockManager) -> None:
    """Lose a lease: told so by a test, or because its keys are gone."""
    name = f"lost:{next(mill.numbers)}"
    async with manager.lock(name, ttl=1.0) as lease:
        with mill.claims.claim(lease):
            if mill.random.random() < 0.5:
                lose(manager, name)
            else:
                await manager.force_release(name)
            await asyncio.sleep(5.0)


async def travels(mill: Mill, manager: LockManager) -> None:
    """Acquire without a block, let it go on or run out, and release in another task."""
    lease = await manager.lock(f"warm:{mill.random.randrange(WARM)}", blocking_timeout=1.0).acquire()
    with mill.claims.claim(lease):
        await mill.pause(0.05)
    await asyncio.create_task(_release(lease))


async def _release(lease: Lease) -> None:
    await lease.release()


WORKERS: Final = (
    Worker(act=hot, tasks=12),
    Worker(act=distinct, tasks=6),
    Worker(act=several, tasks=4),
    Worker(act=cancelled, tasks=6),
    Worker(act=long, tasks=6),
    Worker(act=loses, tasks=2),
    Worker(act=travels, tasks=4),
)
