"""One run of the search for two holders by lists of nodes that disagree (A4, R12c).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  The clients of one
list begin; later there are clients with another one, in which some servers are others.  Servers freeze, lose
their connections and their memory, one at a time; clients of the first list are cut off for good.

What R12c does not promise is left out: the second list comes after the first one was noted; no client is cut
off from the nodes that the lists share and from no others; and every majority has a node that they share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockError, LockManager
from aioredlock_ng.testing import MemoryNode, SimLoop
from aioredlock_ng.testing._memory_wire import Wire
from tests.simulation import searching
from tests.simulation.searching import ViolationError, judge_exclusion

NAME: Final = "a"

NOTED: Final = 1.5
"""Seconds within which a client has told all nodes that it reaches which servers it uses."""

CALM: Final = 6.0
"""Seconds of acting with both lists."""


class Rule(StrEnum):
    """What is judged."""

    EXCLUSION = "two holders at once"
    OLDER = "the list that was used first goes on"
    NOTICED = "the other list is refused while clients use the first"
    FREE = "the other list works when no client has used the first for a quarantine"


@dataclass(frozen=True, slots=True)
class Hold:
    """A body that ran under the lock."""

    client: str
    began: float
    ended: float


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("lists", seed)
        self.size = self.draw.choice((3, 3, 5))
        self.others = self.draw.randint(1, self.size // 2)  # so that every majority has a shared node
        self.quarantine = self.draw.choice((6.5, 9.0))
        self.holds: list[Hold] = []
        self._gone: set[str] = set()
        self._wires: dict[str, list[Wire]] = {}

    def __str__(self) -> str:
        return f"{self.size} nodes, {self.others} others, {self.quarantine} s; {dict(self.counts)}"

    async def _main(self) -> None:
        draw = self.draw
        pool = self._memory(self.size + self.others, slowest=0.004)
        self.nodes = pool
        first, second = pool[: self.size], pool[self.others :]
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            ours = [await self._client(stack, tasks, f"first {i}", first) for i in range(2)]
            await asyncio.sleep(NOTED + draw.uniform(0, 2))
            tasks.create_task(self._trouble())
            theirs = [await self._client(stack, tasks, f"second {i}", second) for i in range(2)]
            await asyncio.sleep(draw.uniform(0, CALM))
            leaves = draw.random() < 0.6
            if leaves:
                self.counts["leaves"] += 1
                for number in range(2):
                    await self._leave(f"first {number}")
            await asyncio.sleep(CALM)
            self._over = True
            await asyncio.sleep(3 * self.quarantine)
            await self._judge_end(ours, theirs, leaves=leaves)
            for wire in itertools.chain.from_iterable(node.wires for node in pool):
                wire.mend()
        judge_exclusion(self.holds, Rule.EXCLUSION)

    async def _client(
        self,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
        name: str,
        nodes: list[MemoryNode],
    ) -> LockManager:
        wires = [node.wire() for node in self.draw.sample(nodes, len(nodes))]
        self._wires[name] = wires
        manager = LockManager(
            wires,
            clock=SimLoop.running().clock,
            random=self.draw,
            restart_quarantine=self.quarantine,
            ttl=self.quarantine,
            connect_timeout=0.5,
            holder=name,
        )
        stack.push_async_callback(manager.aclose)
        tasks.create_task(self._work(manager, name))
        return manager

    async def _leave(self, name: str) -> None:
        """Cut a client off, in whatever state it is; it asks no more."""
        await asyncio.sleep(self.draw.uniform(0, 1))
        self._gone.add(name)
        for wire in self._wires[name]:
            wire.cut()

    async def _work(self, manager: LockManager, name: str) -> None:
        """Take and give back the lock until the end."""
        draw, now = self.draw, SimLoop.running().time
        while not self._over and name not in self._gone:
            extension = draw.choice((ExtensionPolicy(), ExtensionPolicy.off()))
            lock = manager.lock(NAME, blocking_timeout=draw.uniform(0, 0.5), extension=extension)
            try:
                async with lock:
                    began = now()
                    try:
                        await asyncio.sleep(draw.choice((draw.uniform(0, 0.3), 2 * self.quarantine)))
                    finally:
                        self.counts[f"{name[:-2]} held"] += 1
                        self.holds.append(Hold(name, began, now()))
            except ConfigurationError as error:
                self.counts[f"{name[:-2]} refused"] += 1
                if name.startswith("first"):
                    raise ViolationError(Rule.OLDER, str(error)) from error
            except LockError:
                self.counts["not acquired"] += 1
            await asyncio.sleep(draw.uniform(0.01, 0.3))

    async def _trouble(self) -> None:
        """Trouble a node at a time."""
        draw = self.draw
        kinds = (MemoryNode.disconnect, MemoryNode.freeze, MemoryNode.restart, MemoryNode.flush)
        while not self._over:
            await asyncio.sleep(draw.uniform(0.5, 3))
            await self._strike(draw.choice(self.nodes), draw.choice(kinds), 1.0)

    async def _judge_end(self, ours: list[LockManager], theirs: list[LockManager], *, leaves: bool) -> None:
        for manager in () if leaves else ours:
            if (error := await self._tried(manager)) is not None:
                raise ViolationError(Rule.OLDER, repr(error))
        for manager in theirs:
            error = await self._tried(manager)
            if leaves and error is not None:
                raise ViolationError(Rule.FREE, repr(error))
            if not leaves and not isinstance(error, ConfigurationError):
                raise ViolationError(Rule.NOTICED, repr(error))

    async def _tried(self, manager: LockManager) -> Exception | None:
        try:
            async with manager.lock("last", blocking_timeout=2):
                return None
        except (LockError, ConfigurationError) as error:
            return error
