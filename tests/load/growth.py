"""The things that a process keeps, measured again and again, and which of these series grow.

The first quarter of a run is warm-up; the medians of the second and the last quarter are compared.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from aioredlock_ng import Lease
from aioredlock_ng._core.command import Command
from aioredlock_ng._core.quorum import Tally
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._lock.handoff import HandoffWindow
from aioredlock_ng._lock.holding import Holding
from aioredlock_ng._lock.local_queue import NameQueue
from aioredlock_ng._lock.session import Session
from aioredlock_ng._node.ledger import PendingRelease, _Unresolved
from aioredlock_ng._node.link import Link
from aioredlock_ng._round.round import Round

PACKAGE: Final = "aioredlock_ng"
FEWEST: Final = 8  # samples below which there are no quarters to compare
MIB: Final = 2**20


class Tolerance(NamedTuple):
    """The most by which the last quarter's median may exceed the second's: the larger of the two."""

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

PATIENCE: Final = 12.0  # seconds in which what managers have left must be gone


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


async def left_behind(idle: set[asyncio.Task[Any]], objects: Counter[str], fds: int) -> dict[str, float]:
    """Return the tasks, objects and descriptors that outlived their managers for a while."""
    deadline = time.monotonic() + PATIENCE
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
