"""What the random searches over a world of their own have in common: a run, its rules, and many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Coroutine, Iterable
from enum import StrEnum
from typing import Any, Protocol

from aioredlock_ng.testing import SimLoop
from tests.simulation.campaign import silence


class ViolationError(AssertionError):
    """The search has found what must not be."""

    def __init__(self, rule: StrEnum, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class World(Protocol):
    """One run, which a seed decides; `counts` says what happened in it."""

    counts: Counter[str]

    def run(self) -> object:
        """Run it, and judge it; raises ViolationError where a rule was broken."""


def judge(main: Coroutine[Any, Any, None]) -> None:
    """Run it on virtual time; of a group of errors that tasks have raised, the first violation is raised.

    Raises:
        ViolationError: a rule was broken.
    """
    try:
        SimLoop.run(main)
    except ExceptionGroup as group:
        found, others = group.split(ViolationError)
        if others is not None:
            raise
        violation: BaseException | None = found
        while isinstance(violation, ExceptionGroup):
            violation = violation.exceptions[0]
        assert violation is not None, "a group has members"
        raise violation from None


def search(world: Callable[[int], World], seeds: Iterable[int]) -> Counter[str]:
    """Run all seeds; return what happened in them.  Fails with a seed that breaks a rule."""
    counts: Counter[str] = Counter()
    with silence():
        for seed in seeds:
            run = world(seed)
            try:
                run.run()
            except ViolationError as error:
                error.add_note(f"seed {seed}: {run}")
                raise
            counts += run.counts
    return counts


def first(world: Callable[[int], World], rules: Container[StrEnum], seeds: Iterable[int]) -> int | None:
    """Return the first seed that breaks one of these rules; None when there is none."""
    with silence():
        for seed in seeds:
            try:
                world(seed).run()
            except ViolationError as error:
                if error.rule in rules:
                    return seed
    return None
