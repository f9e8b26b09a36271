"""One run of the search for what a stray client can do: an older quorum, and a list that is another's (R12a).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  Clients of the
quorum and of the stray list take and give back one name at random times, while nodes freeze, lose their
connections and their memory.  Within the run a node or two lose their memory, and the stray client, whose
list shares them, finds them without a record: it uses them, or states by `init` that they are its own.

What R12a does not promise is left out of the run, or of the judgement: a shared node is not out of reach
for long, so that both find out about each other; a majority of the quorum remembers; and a stray client that
waits for nothing, having one or two nodes or an operator's word, may hold beside others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from aioredlock_ng import (
    ConfigurationError,
    LockManager,
    NodeState,
)
from aioredlock_ng._core.quarantine import parse
from aioredlock_ng.events import Hooks, Misconfigured
from aioredlock_ng.testing import SimLoop
from tests.simulation import searching
from tests.simulation.searching import NAME, Hold, ViolationError
from tests.simulation.wires import WiredNode
from tests.unit.traces import PREFIX

META: Final = PREFIX + b"{meta}"

NOTICED: Final = 1.5
"""Seconds within which every client has found out the state of a node that it reaches."""

CALM: Final = 10.0
"""Seconds of acting after the stray client's beginning."""

LONGEST: Final = 6.0
"""The longest quarantine, and ttl, of any client."""

PAUSES: Final = 0.6
"""Seconds between two locks of one client, at most."""


class Rule(StrEnum):
    """The rules of the judgement."""

    EXCLUSION = "two holders at once"
    TAKEN_ONCE = "a node is taken back once for each time that it was used by a stray"
    STATEMENT = "what an `init` has claimed is not taken back"
    RETURNED = "the older quorum has its nodes back, and works"
    REFUSED = "the stray ends in ConfigurationError"


class Reclaims(Hooks):
    """Counts how often nodes are taken back."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def on_misconfigured(self, event: Misconfigured) -> None:
        """Count it."""
        self._counts["taken back"] += "; reclaimed: " in event.reason


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("stray", seed)
        draw = self.draw
        self.size = draw.choice((3, 5))
        self.shared = draw.randint(1, self.size // 2)  # the others are a majority, and remember
        sizes = [size for size in (1, 2, 3, 4, 5) if size != self.size and size >= self.shared]
        self.stray_size = draw.choice(sizes)
        self.by_init = draw.random() < 0.2
        self.quarantine = draw.choice((1.0, 2.5))
        waits = self.stray_size > 2 or draw.random() < 0.2
        self.stray_quarantine = draw.choice((2.0, LONGEST)) if waits else 0
        self.losses = 0
        """Counts losses of memory of nodes that the lists share."""
        self.stated = False
        """Whether an `init` has claimed one of those."""

    def __str__(self) -> str:
        how = "by init" if self.by_init else "by use"
        return (
            f"{self.size} nodes ({self.quarantine} s), {self.shared} of them in a list of {self.stray_size} "
            f"({self.stray_quarantine} s, {how}); {dict(self.counts)}"
        )

    async def _main(self) -> None:
        self.nodes = self._memory(self.size, slowest=0.004)
        others = self._memory(self.stray_size - self.shared, slowest=0.004)
        for node in others:
            node.flush()  # not pristine: a first use waits
        self.list = [*self.nodes[: self.shared], *others]
        self.draw.shuffle(self.list)
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            ours = [await self._client(stack, tasks, i) for i in range(2)]
            tasks.create_task(self._trouble())
            await asyncio.sleep(self.draw.uniform(1, 3))
            strays = await self._meet(stack, tasks)
            await asyncio.sleep(self.draw.uniform(0, CALM / 2))
            ours.append(await self._client(stack, tasks, 2))  # it knows what it reads, no more
            await asyncio.sleep(CALM)
            self._over = True
            await asyncio.sleep(2 * LONGEST + 4)
            self._judge_holds()
            await self._judge_end(ours, strays)

    # -- clients and faults ------------------------------------------------------------------------------

    async def _client(
        self, stack: contextlib.AsyncExitStack, tasks: asyncio.TaskGroup, number: int, *, stray: bool = False
    ) -> LockManager:
        wait = self.stray_quarantine if stray else self.quarantine
        nodes = self.list if stray else self.nodes
        ttl = wait or LONGEST
        manager = await self._manager(
            stack, nodes, restart_quarantine=wait, ttl=ttl, hooks=[Reclaims(self.counts)]
        )
        name = f"{'stray' if stray else 'ours'} {number}"
        tasks.create_task(self._work(manager, name, ttl))
        return manager

    async def _work(self, manager: LockManager, name: str, ttl: float) -> None:
        """Take and give back the lock until the end."""
        draw = self.draw
        while not self._over:
            error = await self._hold(
                manager,
                name,
                lambda: draw.choice((draw.uniform(0, 0.3), draw.uniform(0, 2 * ttl))),
                extension=self._extension(),
                ttl=draw.uniform(ttl / 2, ttl),
                blocking_timeout=draw.uniform(0, 1),
            )
            if error is not None:
                self.counts[f"{name[:-2]} {type(error).__name__}"] += 1
            await asyncio.sleep(draw.uniform(0.01, PAUSES))

    async def _meet(self, stack: contextlib.AsyncExitStack, tasks: asyncio.TaskGroup) -> list[LockManager]:
        """Let the shared nodes forget, and the stray clients find them so, before or after that."""
        draw = self.draw
        early = draw.random() < 0.3  # it was refused, so far
        strays = [await self._client(stack, tasks, 0, stray=True)] if early else []
        await asyncio.sleep(draw.uniform(0, 1))
        lose = draw.choice((WiredNode.flush, WiredNode.restart))
        for node in self.nodes[: self.shared]:
            lose(node)
            self.losses += 1
        await asyncio.sleep(draw.choice((0, draw.uniform(0, 0.4))))
        if not early:
            strays.append(await self._client(stack, tasks, 0, stray=True))
        if self.by_init:
            stated = await strays[0].init(force=True)
            shared = {node.name for node in self.nodes[: self.shared]}
            self.stated = any(node.done and node.node in shared for node in stated)
        elif self.stray_quarantine and draw.random() < 0.5:
            strays.append(await self._client(stack, tasks, 1, stray=True))
        return strays

    async def _trouble(self) -> None:
        """Trouble a node at a time: a shared one only for a moment; the others lose memory, but later."""
        draw, now = self.draw, SimLoop.running().time
        while not self._over:
            await asyncio.sleep(draw.uniform(0.3, 3))
            shared = draw.random() < 0.4
            node = draw.choice(self.nodes[: self.shared] if shared else self.nodes[self.shared :])
            kinds: list[Callable[[WiredNode], Any]] = [WiredNode.disconnect, WiredNode.freeze]
            if not shared and now() > 1000 + 3 + 1 + 0.4 + NOTICED and not self._stray_now():
                kinds += [WiredNode.flush, WiredNode.restart]
            await self._strike(node, draw.choice(kinds), 0.5 if shared else 2)

    def _stray_now(self) -> bool:
        known = [parse(node.get(META) or b"") for node in self.nodes]
        return any(incarnation is not None and incarnation.size != self.size for incarnation in known)

    # -- the judgement -------------------------------------------------------------------------

    def _judge_holds(self) -> None:
        holds = sorted(self.holds, key=lambda hold: hold.began)
        for i, one in enumerate(holds):
            for other in holds[i + 1 :]:
                if other.began < one.ended and not self._excused(one, other):
                    raise ViolationError(Rule.EXCLUSION, f"{one}, {other}")

    def _excused(self, one: Hold, later: Hold) -> bool:
        """Whether the second of two holders is what R12a cannot prevent: the stray did not wait."""
        if self.stray_quarantine and not self.by_init:
            return False
        strays = [hold.client.startswith("stray") for hold in (one, later)]
        self.counts["beside another holder"] += strays[0] != strays[1]
        return any(strays)

    async def _judge_end(self, ours: list[LockManager], strays: list[LockManager]) -> None:
        taken = self.counts["taken back"]
        stated = self.by_init and self._stray_now()
        if stated or self.stated:
            self.counts["stated"] += 1
            error = repr(await self._refusal(ours[0], NAME, 0))
            if not stated or "initialised by `init` of" not in error:
                raise ViolationError(Rule.STATEMENT, error)
            for manager in strays:
                await manager.aclose()  # the operator stops them, as `init` wants
            await ours[0].init(force=True)
            await asyncio.sleep(NOTICED)
        # Several clients may try at once; only one of them finds the stray's incarnation record.
        if taken > self.losses * len(ours):
            raise ViolationError(Rule.TAKEN_ONCE, f"{taken} times")
        for manager in ours:
            states = [node.state for node in manager.statistics().nodes]
            if (refused := await self._refusal(manager, NAME, 2)) is not None:
                raise ViolationError(Rule.RETURNED, repr(refused))
            if self._stray_now() or set(states) != {NodeState.UP}:
                raise ViolationError(Rule.RETURNED, f"{states}")
        for manager in strays if not stated else ():
            refused = await self._refusal(manager, NAME, 0)
            if not isinstance(refused, ConfigurationError):
                raise ViolationError(Rule.REFUSED, repr(refused))
