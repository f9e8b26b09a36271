"""A long run under mixed load and real faults: exclusion, fences, and nothing that grows.

    python -m tests.load.soak --minutes 30 [--uvloop]

One process, two managers (which stand for two processes: they share nothing but the clock) over five real
servers.  Meanwhile nodes are frozen, killed and restarted empty, a minority at a time.  Exit code 1 when two
held a name at once, a fence did not grow, something was left behind, or a series grew.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

from aioredlock_ng import Lease, LockManager
from aioredlock_ng._core.command import Command
from aioredlock_ng._core.quorum import Tally
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._lock.handoff import HandoffWindow
from aioredlock_ng._lock.holding import Holding
from aioredlock_ng._lock.local_queue import NameQueue
from aioredlock_ng._node.ledger import PendingRelease, _Unresolved
from aioredlock_ng._node.link import Link
from aioredlock_ng._round.round import Round
from aioredlock_ng._session.session import Session
from aioredlock_ng.testing import local_nodes
from tests.faults.disturber import Disturber
from tests.load.claims import Claims
from tests.load.work import QUARANTINE, TTL, WORKERS, Mill

PACKAGE: Final = "aioredlock_ng"
FEWEST: Final = 8  # samples below which there are no quarters to compare
MIB: Final = 2**20

Leak = Callable[[Mill], Coroutine[Any, Any, None]]


class Tolerance(NamedTuple):
    """How much more the last quarter's median may be than the second's: the larger of the two."""

    share: float
    units: float


# For what piles up while a node is away, or is frozen, and goes soon after its return.
PILES: Final = Tolerance(0.25, 2048)

# What may differ between the quarters of a run of minutes; the first that fits counts.
LONG: Final = {
    "rss": Tolerance(0.10, 12 * MIB),
    "fds": Tolerance(0, 4),
    "tasks": Tolerance(0.10, 12),
    f"object {Primitive.__name__}": Tolerance(0.25, 256),
    f"object {HandoffWindow.__name__}": Tolerance(0.25, 256),
    **{f"object {kind.__name__}": PILES for kind in (_Unresolved, PendingRelease, Command, Round, Tally)},
}

# … and of seconds: caches are being filled, and a node may be away at their end.
SHORT: Final = {
    f"object {NameQueue.__name__}": Tolerance(0.25, 100),
    "object": Tolerance(10.0, 20_000),
    **LONG,
    "rss": Tolerance(0, 64 * MIB),
}

USUAL: Final = Tolerance(0.25, 100)

STOP_WITHIN: Final = 60.0  # seconds for the load to end: every wait in it is shorter


# Seconds after which a restarted node votes again, whichever client looks.
HEAL: Final = QUARANTINE * 1.01 + 1.0


def growing(
    samples: Sequence[Mapping[str, float]], tolerances: Mapping[str, Tolerance]
) -> dict[str, tuple[float, float]]:
    """Return the medians of the second and the last quarter of each series that grew; the first is warm-up.

    One without a sample somewhere was 0 there.  Tolerances are by the beginning of a series' name.
    """
    assert len(samples) >= FEWEST, f"{len(samples)} samples are too few to tell"
    quarter, found = len(samples) // 4, {}
    for name in sorted({name for sample in samples for name in sample}):
        share, units = next((t for start, t in tolerances.items() if name.startswith(start)), USUAL)
        series = [sample.get(name, 0) for sample in samples]
        before, after = median(series[quarter : 2 * quarter]), median(series[-quarter:])
        if after > max(before * (1 + share), before + units):
            found[name] = before, after
    return found


def descriptors() -> int:
    """Return how many file descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident() -> int:
    """Return this process's resident memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def own_objects() -> Counter[str]:
    """Count the objects of the package's own types that the collector knows."""
    found: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        if str(kind.__module__).startswith(PACKAGE):
            found[f"object {kind.__name__}"] += 1
    return found


def sample() -> dict[str, float]:
    """Measure this process, and how many objects of each of our types there are."""
    gc.collect()
    found = Counter({"tasks": len(asyncio.all_tasks()), "fds": descriptors(), "rss": resident()})
    return dict(found + own_objects())


@dataclass(kw_only=True)
class Outcome:
    """What a run has shown."""

    counts: Counter[str]
    violations: list[str]
    left: dict[str, float]  # what closed managers left behind
    growing: dict[str, tuple[float, float]]

    @property
    def ok(self) -> bool:
        """Whether all is as it should be."""
        return not (self.violations or self.left or self.growing)


async def soak(
    seconds: float, *, every: float, tolerances: dict[str, Tolerance], leak: Leak | None = None
) -> Outcome:
    """Run the load for so long, longer if it takes longer to have samples enough, and judge it.

    A `leak` is called with each sample: to see that the judge finds it.
    """
    gc.collect()
    before = asyncio.all_tasks(), own_objects(), descriptors()
    claims, samples = Claims(), []
    began = time.monotonic()
    async with _mill(claims, Random(1)) as mill, _running(mill):
        while time.monotonic() - began < seconds or len(samples) < FEWEST:
            await asyncio.sleep(every)
            samples.append(sample())
            if leak is not None:
                await leak(mill)
    claims.violations += mill.stray
    del mill
    left = {} if leak else await _left_behind(*before)
    grew = growing(samples, tolerances)
    return Outcome(counts=claims.counts, violations=claims.violations, left=left, growing=grew)


@asynccontextmanager
async def _mill(claims: Claims, random: Random) -> AsyncIterator[Mill]:
    async with local_nodes(5) as nodes, AsyncExitStack() as stack:
        managers = [
            await stack.enter_async_context(
                LockManager(nodes.urls, ttl=TTL, restart_quarantine=QUARANTINE, holder=f"process {i}")
            )
            for i in range(2)
        ]
        yield Mill(nodes=nodes, managers=managers, claims=claims, random=random)


@asynccontextmanager
async def _running(mill: Mill) -> AsyncIterator[None]:
    """Let the workers work, and end them all."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: mill.stray.append(repr(context)))
    tasks = [loop.create_task(mill.work(worker)) for worker in WORKERS for _ in range(worker.tasks)]
    kinds = ("freeze", "freeze", "restart", "disconnect", "scripts")
    disturber = Disturber(mill.nodes, mill.random, kinds, frozen=(0.05, 4.0), pause=HEAL)
    troubles = loop.create_task(disturber.disturb())
    try:
        yield
    finally:
        mill.over = True
        for kept in mill.kept:
            end = getattr(kept, "cancel", None) or getattr(kept, "close", None)
            if end is not None:
                end()
        troubles.cancel()
        mill.claims.counts.update({f"faults: {kind}": count for kind, count in disturber.did.items()})
        await asyncio.wait((troubles,))
        _, late = await asyncio.wait(tasks, timeout=STOP_WITHIN)
        for task in late:
            mill.stray.append(f"does not end: {task!r}")
            task.cancel()
        loop.set_exception_handler(handler)
        mill.stray += [repr(task.exception()) for task in tasks if task not in late and task.exception()]


async def _left_behind(idle: set[asyncio.Task[Any]], objects: Counter[str], fds: int) -> dict[str, float]:
    """Return the tasks, objects and descriptors that outlived their managers for a while."""
    deadline = time.monotonic() + 4 * TTL
    while True:
        gc.collect()
        now = own_objects()
        kinds = [f"object {kind.__name__}" for kind in (Session, Holding, Attempt, Lease, NameQueue, Link)]
        left: dict[str, float] = {
            kind: now[kind] - objects[kind] for kind in kinds if now[kind] > objects[kind]
        }
        left |= {"tasks": len(tasks)} if (tasks := asyncio.all_tasks() - idle) else {}
        left |= {"fds": more} if (more := descriptors() - fds) > 0 else {}
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.05)


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # nodes go down and leases are lost all the time
    seconds = arguments.minutes * 60
    every = min(max(seconds / 200, 1.0), seconds / FEWEST)
    running = soak(seconds, every=every, tolerances=LONG if seconds >= 240 else SHORT)
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        outcome = runner.run(running)
    print(outcome, "ok" if outcome.ok else "NOT OK", sep="\n")
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
