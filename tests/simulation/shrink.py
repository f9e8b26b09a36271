"""Make a failing run smaller: fewer faults, fewer clients, and the same rule still broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.campaign import judged, silence
from tests.simulation.plan import Plan
from tests.simulation.world import run

MAX_RUNS: Final = 400
"""Runs that one shrinking may take."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The parts of a plan that are left: the numbers of its clients and faults."""

    clients: tuple[int, ...]
    faults: tuple[int, ...]

    def of(self, plan: Plan) -> Plan:
        """Return the plan with nothing else."""
        return plan.cut(clients=self.clients, faults=self.faults)


def whole(plan: Plan) -> Cut:
    """Return all of a plan."""
    return Cut(tuple(range(len(plan.clients))), tuple(range(len(plan.faults))))


def shrink(plan: Plan, rule: str, part: Cut | None = None) -> Cut:
    """Return a small part of `plan`, or of a `part` of it, that still breaks `rule`.

    At the latest after `MAX_RUNS` runs.
    """
    left = MAX_RUNS

    def breaks(cut: Cut) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and any(violation.rule == rule for violation in judged(run(cut.of(plan))))

    cut = part or whole(plan)
    with silence():
        while left > 0:
            before = cut
            faults = fewest(cut.faults, lambda some, now=cut: breaks(Cut(now.clients, some)), least=0)
            cut = Cut(cut.clients, faults)
            clients = fewest(cut.clients, lambda some, now=cut: breaks(Cut(some, now.faults)), least=1)
            cut = Cut(clients, cut.faults)
            if cut == before:
                break
    return cut


def fewest(things: Sequence[int], still: Callable[[tuple[int, ...]], bool], *, least: int) -> tuple[int, ...]:
    """Leave out as many things as possible: by halves, then by ever smaller parts (delta debugging)."""
    left = tuple(things)
    size = max(1, len(left) // 2)
    while True:
        for start in range(0, len(left), size):
            some = left[:start] + left[start + size :]
            if least <= len(some) < len(left) and still(some):
                left = some
                break
        else:
            if size == 1:
                return left
            size //= 2
