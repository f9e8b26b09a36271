"""One run of the search for a node that votes although it has forgotten locks (R12b).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  Clients come in
generations.  While one of them holds the lock, it is cut off, or its nodes lose their memory, or both; the
next one knows nothing of it, and finds nodes that have run for some time.

What R12b does not promise is left out: a clock jumps at one node only, while the others have records; one
server at a time is replaced; and keys are deleted by hand only under the eyes of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from aioredlock_ng import LockManager
from tests.simulation import searching
from tests.simulation.searching import ViolationError, judge_exclusion
from tests.simulation.wires import WiredNode

NOTICED: Final = 1.5
"""Seconds within which a client that is connected has noticed that a record is gone."""


class Rule(StrEnum):
    """The rules of the judgement."""

    EXCLUSION = "two holders at once"
    AT_ONCE = "nodes that have run for long, and forgot nothing, are used at once"


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("first use", seed)
        self.size = self.draw.choice((3, 3, 5))
        self.quarantine = self.draw.choice((4.0, 6.0))
        self._gone: set[int] = set()
        """The generations that are cut off."""

    def __str__(self) -> str:
        return f"{self.size} nodes, {self.quarantine} s; {dict(self.counts)}"

    async def _main(self) -> None:
        draw, quarantine = self.draw, self.quarantine
        nodes = [
            WiredNode(latency=lambda: draw.uniform(0.0002, 0.004), clock_offset=draw.randint(-2, 2))
            for _ in range(self.size + 3)
        ]
        for node in nodes:
            node.restart()  # not pristine: a first use waits
        self.nodes, self._spares = nodes[:-3], nodes[-3:]
        aged = draw.random() < 0.5
        await asyncio.sleep(2.1 * quarantine if aged else draw.uniform(0, 1.5 * quarantine))
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for generation in range(draw.randint(2, 3)):
                wires = [node.wire() for node in self.nodes]
                # Often a client has no more than a majority, so that each of its nodes matters.
                missed = draw.sample(range(self.size), draw.choice((0, self.size // 2)) if generation else 0)
                for i in missed:
                    wires[i].cut()
                self._holds = asyncio.Event()
                await self._come(stack, tasks, generation, wires, at_once=aged and not generation)
                await asyncio.sleep(draw.choice((draw.uniform(0.2, quarantine), 2 * quarantine)))
                with contextlib.suppress(TimeoutError):
                    self._holds.clear()
                    await asyncio.wait_for(self._holds.wait(), 2 * quarantine)
                    await asyncio.sleep(draw.choice((0, draw.uniform(0, quarantine))))
                if cut := draw.random() < 0.8:
                    self.counts["cut"] += 1
                    self._gone.add(generation)
                    for wire in wires:
                        wire.cut()
                await self._trouble([node for i, node in enumerate(self.nodes) if i not in missed], cut=cut)
            await asyncio.sleep(2 * quarantine)
            self._over = True
            for node in nodes:
                for wire in node.wires:
                    wire.mend()
        judge_exclusion(self.holds, Rule.EXCLUSION)

    async def _come(
        self,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
        generation: int,
        wires: Sequence[Any],
        *,
        at_once: bool,
    ) -> None:
        """Let a client come that knows nothing of those before it."""
        manager = await self._manager(
            stack, wires, restart_quarantine=self.quarantine, ttl=self.quarantine, connect_timeout=0.5
        )
        if at_once:
            if (error := await self._refusal(manager, "first", 1)) is not None:
                raise ViolationError(Rule.AT_ONCE, repr(error))
            self.counts["used at once"] += 1
        tasks.create_task(self._work(manager, generation))

    async def _work(self, manager: LockManager, generation: int) -> None:
        """Take and give back the lock until the end."""
        draw = self.draw
        while not self._over and generation not in self._gone:
            error = await self._hold(
                manager,
                f"client {generation}",
                lambda: draw.choice((draw.uniform(0, 0.3), 2 * self.quarantine)),
                entered=self._holds.set,
                extension=self._extension(),
                ttl=self.quarantine,
                blocking_timeout=draw.uniform(0, 1),
            )
            self.counts["refused"] += error is not None
            await asyncio.sleep(draw.uniform(0.01, 0.2))

    async def _trouble(self, reached: list[WiredNode], *, cut: bool) -> None:
        """Let all nodes lose their memory, or one of the client's, whose clock may jump after that."""
        draw = self.draw
        number = draw.choice((0, 1, 1, self.size, self.size, self.size))
        kind = draw.choice(("restart", "restart", "flush") if cut else ("restart", "flush", "delete"))
        self.counts[kind] += number
        for node in self.nodes if number == self.size else draw.sample(reached, number):
            if kind == "restart":
                node.restart()
            elif kind == "flush":
                node.flush()
            else:
                for key in node.keys:
                    node.delete(key)
        if kind == "restart" and number == 1:
            self.counts["jump"] += 1
            next(node for node in reached if not node.keys).step_clock(draw.uniform(1.2, 2) * self.quarantine)
        # One server is replaced by another one, which has run for as long as the others.
        if draw.random() < 0.3:
            self.counts["replace"] += 1
            place = draw.randrange(self.size)
            self.nodes[place].crash()
            self.nodes[place] = self._spares.pop()
        if kind == "delete":
            await asyncio.sleep(NOTICED)
        await asyncio.sleep(draw.choice((draw.uniform(0, 1), draw.uniform(0, 1.3 * self.quarantine))))
