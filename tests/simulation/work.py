"""What the tasks of a simulated process do, as it is drawn, and what their manager tells of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Protocol

from aioredlock_ng import LossReason
from aioredlock_ng.events import Acquired, ClockStepped, Extended, Lost, NodeChanged, Refused
from tests.simulation.plan import Plan

MAX_STEPS: Final = 12
"""Pauses of an operation at one of which a stumbling task is cancelled."""


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


def draw_work(rng: random.Random, plan: Plan) -> Work:
    """Draw one operation."""
    two = len(plan.names) > 1 and rng.random() < 0.1
    long = rng.random() < 0.1
    inside = rng.uniform(0.5, 2.5) * plan.ttl if long else rng.expovariate(1 / 0.05)
    return Work(
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


class Holder(Protocol):
    """Whose leases are lost."""

    def lost(self, label: str, reason: LossReason) -> None:
        """Note that the lease of a lock with this label is lost."""


@dataclass(slots=True)
class Hooks:
    """Counts what a manager tells, and notes when a lease was lost."""

    holder: Holder
    counts: Counter[str] = field(default_factory=Counter)

    def on_acquired(self, event: Acquired) -> None:
        """Count a win."""
        if event.handed_on:
            self.counts["handed on"] += 1
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
