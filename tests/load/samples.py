"""What a process keeps, measured again and again, and whether that grows (the soak's judge)."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from aioredlock_ng import LockManager
from aioredlock_ng._session.session import Session

PACKAGE: Final = "aioredlock_ng"

FEWEST: Final = 8  # samples below which there are no quarters to compare

MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much more the last quarter's median may be than the second's: the larger of the two."""

    share: float
    units: float

    def allows(self, before: float) -> float:
        """Return the highest median that still counts as flat."""
        return max(before * (1 + self.share), before + self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One series: the medians of its second and its last quarter, and what was allowed."""

    name: str
    before: float
    after: float
    allowed: float

    @property
    def growing(self) -> bool:
        """Whether it grew beyond its tolerance."""
        return self.after > self.allowed

    def __str__(self) -> str:
        word = "GROWING" if self.growing else "FLAT"
        return f"{self.name:34} {self.before:14,.1f} {self.after:14,.1f} {self.allowed:14,.1f}  {word}"


HEADLINE: Final = f"{'series':34} {'second quarter':>14} {'last quarter':>14} {'allowed':>14}"


def trend(name: str, series: Sequence[float], tolerance: Tolerance) -> Trend:
    """Compare the medians of the second and the last quarter; the first is for warming up."""
    quarter = len(series) // 4
    before, after = median(series[quarter : 2 * quarter]), median(series[-quarter:])
    return Trend(name=name, before=before, after=after, allowed=tolerance.allows(before))


def trends(
    samples: Sequence[Mapping[str, float]], tolerances: Mapping[str, Tolerance], usual: Tolerance
) -> list[Trend]:
    """Judge every series; one without a sample somewhere was 0 there.

    `tolerances` are by the beginning of a series' name; what none of them fits has the `usual` one.
    """
    assert len(samples) >= FEWEST, f"{len(samples)} samples are too few to tell"
    names = sorted({name for sample in samples for name in sample})
    return [
        trend(name, [sample.get(name, 0) for sample in samples], _of(name, tolerances) or usual)
        for name in names
    ]


def _of(name: str, tolerances: Mapping[str, Tolerance]) -> Tolerance | None:
    return next((t for beginning, t in tolerances.items() if name.startswith(beginning)), None)


def sample(managers: Iterable[LockManager], *, objects: bool = True) -> dict[str, float]:
    """Measure this process, what the managers keep, and how many objects of each of our types there are."""
    found: Counter[str] = Counter()
    found["tasks"] = len(asyncio.all_tasks())
    found["fds"] = descriptors()
    found["rss"] = resident()
    for manager in managers:
        if (session := manager._life.session) is not None:
            found.update(kept_by(session))
    if objects:
        gc.collect()
        found.update(own_objects())
    return dict(found)


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


def kept_by(session: Session) -> Counter[str]:
    """Return how much a manager keeps of each sort; what is not counted here belongs to a lease."""
    watchdog, outbox = session.watchdog, session.outbox
    deadlines = outbox.deadlines
    found = Counter(
        {
            "kept names": len(session.queue.entries),
            "kept windows": len(session.queue.handoff.windows),
            "kept waiters": len(session.notices._waiters),
            "kept holdings": len(session.holdings.all),
            "kept attempts": len(session.in_flight),
            "kept questions": len(outbox._extensions) + len(outbox._releases) + len(outbox._acquires),
            "kept batches": len(outbox._sent) + len(outbox._under_way),
            "kept releases": len(session.releases._rounds),
            "kept grants": len(session.succession._untaken),
            "kept pauses": len(session.pauses),
            "kept watched": len(watchdog.fresh) + len(watchdog._heap),
            "kept watchdog heap": len(watchdog._heap._entries),
            "kept deadlines heap": len(deadlines._heap._entries) + len(deadlines._new),
            "kept eternal": len(session.eternal.reported),
        }
    )
    for node in session.nodes:
        found.update(_kept_by_node(node))
    return found


def _kept_by_node(node: Any) -> dict[str, int]:
    standing = node.standing
    return {
        "kept in flight": standing.in_flight,
        "kept owed": standing.owed,
        "kept unresolved": len(node._ledger.unresolved),
        "kept channels": len(node._channels),
        "kept channels unsent": len(node._channels._unsent),
    }
