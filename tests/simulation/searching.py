"""The frame of the random searches over a world of their own: a run, its rules, and many seeds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockError, LockManager
from aioredlock_ng.testing import SimLoop
from tests.simulation.campaign import silence
from tests.simulation.wires import Wire, WiredNode
from tests.unit.worlds import make

NAME: Final = "a"


class ViolationError(AssertionError):
    """The search has found what must not be."""

    def __init__(self, rule: StrEnum, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Hold:
    """A body that ran under the lock."""

    client: str
    began: float
    ended: float


def judge_exclusion(holds: Iterable[Hold], rule: StrEnum) -> None:
    """Raise if two bodies ran at once."""
    for one, other in itertools.pairwise(sorted(holds, key=lambda hold: hold.began)):
        if other.began < one.ended:
            raise ViolationError(rule, f"{one}, {other}")


class World(ABC):
    """One run over masters in memory, on virtual time, which a seed decides; `counts` says what happened."""

    def __init__(self, kind: str, seed: int) -> None:
        self.draw = random.Random(f"{kind} {seed}")
        self.counts: Counter[str] = Counter()
        self.holds: list[Hold] = []
        self._over = False

    def run(self) -> Self:
        """Run it, and judge it; of a group of errors that tasks have raised, the first violation is raised.

        Raises:
            ViolationError: a rule was broken.
        """
        try:
            SimLoop.run(self._main())
        except ExceptionGroup as group:
            found, others = group.split(ViolationError)
            if others is not None:
                raise
            violation: BaseException | None = found
            while isinstance(violation, ExceptionGroup):
                violation = violation.exceptions[0]
            assert violation is not None, "a group has members"
            raise violation from None
        return self

    @abstractmethod
    async def _main(self) -> None:
        """Let it happen."""

    def _memory(self, number: int, *, slowest: float) -> list[WiredNode]:
        latency = lambda: self.draw.uniform(0.0002, slowest)  # noqa: E731 (each message another one)
        return [WiredNode(latency=latency) for _ in range(number)]

    async def _manager(
        self, stack: contextlib.AsyncExitStack, nodes: Sequence[WiredNode | Wire], **options: Any
    ) -> LockManager:
        manager = make(nodes, seed=self.draw.getrandbits(32), **options)
        await stack.enter_async_context(contextlib.aclosing(manager))
        return manager

    async def _hold(
        self,
        manager: LockManager,
        client: str,
        seconds: Callable[[], float],
        *,
        entered: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> Exception | None:
        """Hold the lock for a time that is drawn inside; return why it was not had, or did not last."""
        try:
            async with manager.lock(NAME, **options):
                began = SimLoop.running().time()
                entered()
                try:
                    await asyncio.sleep(seconds())
                finally:
                    self.counts[f"{client[:-2]} held"] += 1
                    self.holds.append(Hold(client, began, SimLoop.running().time()))
        except (LockError, ConfigurationError) as error:
            return error
        return None

    def _extension(self) -> ExtensionPolicy:
        return self.draw.choice((ExtensionPolicy(), ExtensionPolicy.off()))

    async def _refusal(self, manager: LockManager, name: str, seconds: float) -> Exception | None:
        """Return why a lock is not had within some time; None if it is."""
        try:
            async with manager.lock(name, blocking_timeout=seconds):
                return None
        except (LockError, ConfigurationError) as error:
            return error

    async def _strike(self, node: WiredNode, kind: Callable[[WiredNode], Any], longest: float) -> None:
        """Let something happen to a node; one that freezes does so for a time that is drawn."""
        self.counts[kind.__name__] += 1
        kind(node)
        if kind is WiredNode.freeze:
            await asyncio.sleep(self.draw.uniform(0.05, longest))
            node.thaw()


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
