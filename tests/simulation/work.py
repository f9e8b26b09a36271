"""The work of the tasks of a simulated process, as it is drawn, and the reports of their manager."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

from aioredlock_ng import LossReason
from aioredlock_ng.events import Acquired, ClockStepped, Extended, Lost, NodeChanged, Refused
from tests.simulation.history import Mode
from tests.simulation.plan import Plan

MAX_STEPS: Final = 12
"""Pauses of an operation at one of which a stumbling task is cancelled."""

HOT: Final = 0.3
"""Share of a crowd's operations that are about one name."""

IN_STEP: Final = 0.6
"""Share of a crowd's operations that begin in one turn of the loop with others, and of those that end so."""

LONG: Final = 0.15
"""Share of a crowd's other operations that need extensions."""

DOWNGRADES: Final = 0.25
"""Share of the writers that become readers before they are done."""

FOLLOWS: Final = 0.5
"""Share of the writers that ask whether another one came since their task's last read lease."""

STEP: Final = 0.1
"""Seconds for which the tasks of a process wait for each other."""


@dataclass(slots=True)
class Work:
    """One operation, as drawn."""

    names: tuple[str, ...]
    patience: float | None
    """Seconds that it waits for the lock; None: as long as it takes."""
    inside: float
    """Seconds that the body takes."""
    by_hand: bool
    """Whether it calls `acquire` and `release`, rather than using ``async with``."""
    extends_at: float | None
    fails: bool
    lingers: bool
    """Whether it uses what is left of validity for its clean-up, when it is cancelled by a loss."""
    stumbles_at: int | None
    """At which of its pauses it is cancelled, if at any."""
    idle: float
    """Seconds until the next one."""
    asks_in_step: bool = False
    """Whether it asks in one turn of the loop with other tasks of its process."""
    leaves_in_step: bool = False
    """Whether it leaves with others."""
    stumbles_at_once: bool = False
    """Whether that cancellation strikes in the turn in which it pauses."""
    mode: Mode = "lock"
    downgrades_at: float | None = None
    """After how many seconds a writer becomes a reader, if it does (R23)."""
    follows: bool = False
    """Whether a writer wants the names that its task last read, and asks if another one came since (R23)."""


def draw_work(rng: random.Random, plan: Plan) -> Work:
    """Draw one operation."""
    two = len(plan.names) > 1 and rng.random() < 0.1
    long = rng.random() < 0.1
    inside = rng.uniform(0.5, 2.5) * plan.ttl if long else rng.expovariate(1 / 0.05)
    work = Work(
        names=tuple(rng.sample(plan.names, 2)) if two else (rng.choice(plan.names),),
        patience=rng.choice((None, None, None, 0.0, rng.uniform(0.05, 3.0))),
        inside=inside,
        by_hand=rng.random() < 0.3,
        extends_at=rng.random() * inside if rng.random() < 0.15 else None,
        fails=rng.random() < 0.05,
        lingers=rng.random() < 0.5,
        stumbles_at=rng.randint(1, MAX_STEPS) if rng.random() < 0.06 else None,
        idle=rng.expovariate(1 / 0.2),
    )
    return _in_a_crowd(rng, plan, work) if plan.crowded else work


def with_mode(rng: random.Random, plan: Plan, work: Work) -> Work:
    """Return an operation with as what it wants its names, drawn from a stream of its own."""
    mode, chance, other = rng.choice(plan.modes), rng.random(), rng.random()
    if mode != "write":
        return replace(work, mode=mode)
    downgrades_at = chance / DOWNGRADES * work.inside if chance < DOWNGRADES else None
    return replace(work, mode=mode, downgrades_at=downgrades_at, follows=other < FOLLOWS)


def _in_a_crowd(rng: random.Random, plan: Plan, work: Work) -> Work:
    """Return what it is where many tasks of a process ask together, often for one name."""
    hot, long = rng.random() < HOT, rng.random() < LONG
    return replace(
        work,
        names=plan.names[:1] if hot and len(work.names) == 1 else work.names,
        inside=plan.ttl * rng.uniform(0.5, 1.5) if long and not hot else work.inside / 5,
        asks_in_step=rng.random() < IN_STEP,
        leaves_in_step=not hot and rng.random() < IN_STEP,
        stumbles_at_once=rng.random() < 1 / 3,
        idle=work.idle / 2,
    )


class Thrown:
    """Runs a coroutine and throws a cancellation into it at its pause number `at`, counted from 1.

    In the same turn of the loop, as when a coroutine is closed: what it has just asked for has not left yet.
    """

    def __init__(self, run: Awaitable[object], at: int) -> None:
        self._run = run
        self._at = at

    def __await__(self) -> Generator[Any, Any, object]:
        """Pass everything else through."""
        inner = cast("Generator[Any, Any, object]", self._run.__await__())
        pauses, raised = 0, None
        while True:
            try:
                pause = next(inner) if raised is None else inner.throw(raised)
            except StopIteration as stop:
                return stop.value
            raised, pauses = None, pauses + 1
            if pauses == self._at:
                raised = asyncio.CancelledError()
                continue
            try:
                yield pause
            except BaseException as error:  # noqa: BLE001 (it belongs to the coroutine)
                raised = error


class Holder(Protocol):
    """The client whose leases are lost."""

    def lost(self, label: str, reason: LossReason) -> None:
        """Note that the lease of a lock with this label is lost."""


@dataclass(slots=True)
class Hooks:
    """Counts what a manager tells, and notes when a lease was lost."""

    holder: Holder
    counts: Counter[str] = field(default_factory=Counter)

    def on_acquired(self, event: Acquired) -> None:
        """Count a win."""
        if event.handed_off:
            self.counts["handed off"] += 1
        else:
            self.counts["won at the first try" if event.attempts == 1 else "won after refusals"] += 1

    def on_refused(self, event: Refused) -> None:
        """Count a refusal."""
        self.counts["refused: taken" if event.taken else "refused: no quorum"] += 1

    def on_extended(self, event: Extended) -> None:
        """Count an extension."""
        self.counts["extended"] += 1
        self.counts["topped up in an extension"] += bool(event.topped_up)

    def on_lost(self, event: Lost) -> None:
        """Count a loss, and have it noted."""
        self.counts[f"lost: {event.reason}"] += 1
        self.holder.lost(event.label, event.reason)

    def on_node_changed(self, event: NodeChanged) -> None:
        """Count where a node stands."""
        self.counts[f"node {event.state}"] += 1

    def on_clock_stepped(self, _: ClockStepped) -> None:
        """Count a step of a node's clock."""
        self.counts["clock step seen"] += 1
