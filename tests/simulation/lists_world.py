"""One run of the search for two holders by lists of nodes that disagree (A4, R12c).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  The clients of one
list begin; later there are clients with another one, in which some servers are others.  Servers freeze, lose
their connections and their memory, one at a time; clients of the first list are cut off for good.  Or single
links break instead, for a moment or for longer than a quarantine, some of them before the clients begin.

What R12c does not promise is left out: the second list comes after the first one was noted; every majority
has a node that the lists share; and where links break, clients that were out of touch may both hold the lock.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from aioredlock_ng import ConfigurationError, LockError, LockManager, NodeState
from aioredlock_ng.testing import SimLoop
from tests.simulation import searching
from tests.simulation.searching import ViolationError, judge_exclusion
from tests.simulation.wires import Wire, WiredNode

NOTED: Final = 1.5
"""Seconds within which a client has informed all nodes that it reaches which servers it uses."""

CALM: Final = 6.0
"""Seconds of acting with both lists."""

LOOK: Final = 0.1
"""Seconds between looks at who reaches what."""

EXCHANGED: Final = 1.2
"""Seconds after which a client that reaches a node has informed it of its servers, and heard of others."""


class Rule(StrEnum):
    """The rules of the judgement."""

    EXCLUSION = "two holders at once"
    OLDER = "the list that was used first goes on"
    NOTICED = "the other list is refused, or reported, while clients use the first"
    FREE = "the other list works when no client has used the first for a quarantine"


class Contacts:
    """Which clients know of each other's servers, through nodes that both have reached (R12c)."""

    def __init__(self) -> None:
        self._reached: dict[tuple[str, WiredNode], float] = {}
        """Since when a client can exchange words with a node."""
        self._votes: dict[str, float] = {}
        """Since when a client has had a majority."""
        self._stated: dict[tuple[str, WiredNode], list[float]] = {}
        """When a client had certainly informed a node of the servers that it used then."""
        self._read: dict[tuple[str, WiredNode], list[float]] = {}
        """When a client had certainly heard from a node of what others had stated."""
        self._used: dict[str, list[float]] = {}
        """When a client had a majority."""
        self._forgot: dict[WiredNode, list[float]] = {}

    def see(self, client: str, node: WiredNode, now: float, *, reached: bool, cut: bool, votes: bool) -> None:
        """Note what can be seen of a client and one of its nodes."""
        key = client, node
        if votes:
            self._used.setdefault(client, []).append(now)
            self._votes.setdefault(client, now)
        else:
            self._votes.pop(client, None)
        if not reached:
            self._reached.pop(key, None)
        elif cut:
            self._reached[key] = now
        # A new connection begins with an exchange; one that was cut goes on with one, within a heartbeat.
        elif now - self._reached.setdefault(key, now - EXCHANGED) >= EXCHANGED:
            self._read.setdefault(key, []).append(now)
            if now - self._votes.get(client, now) >= EXCHANGED:
                self._stated.setdefault(key, []).append(now)

    def forget(self, node: WiredNode, now: float) -> None:
        """Note that a node has lost its memory."""
        self._forgot.setdefault(node, []).append(now)

    def knew(self, client: str, other: str, at: float, life: float) -> bool:
        """Whether a client knew then of all servers that the other one had used within a `life`."""
        if not _within(self._used.get(other, []), at - life - NOTED, at):
            return True
        for (teller, node), stated in self._stated.items():
            read = _within(self._read.get((client, node), []), at - life, at)
            if teller != other or not read:
                continue
            # What it heard last before the client read from it, or lost its memory.
            lost = _within(self._forgot.get(node, []), at - life, at)
            since = max([at - life, *(loss for loss in lost if loss <= read[-1])])
            if _within(stated, since, read[-1]):
                return True
        return False


def _within(moments: Sequence[float], since: float, until: float) -> Sequence[float]:
    """Return the moments between two others, of some in order."""
    return moments[bisect.bisect_left(moments, since) : bisect.bisect_right(moments, until)]


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("lists", seed)
        self.size = self.draw.choice((3, 3, 5))
        self.others = self.draw.randint(1, self.size // 2)  # so that every majority has a shared node
        self.quarantine = self.draw.choice((6.5, 9.0))
        self._gone: set[str] = set()
        self._wires: dict[str, list[Wire]] = {}
        self._links_break = self.draw.random() < 0.5
        self._places: dict[str, list[WiredNode]] = {}
        """The nodes of each client, in its order."""
        self._contacts = Contacts()

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
            tasks.create_task(self._breaks(tasks) if self._links_break else self._trouble())
            theirs = [await self._client(stack, tasks, f"second {i}", second) for i in range(2)]
            await asyncio.sleep(draw.uniform(0, CALM))
            if self._links_break:
                await asyncio.sleep(CALM)
            leaves = draw.random() < 0.6
            if leaves:
                self.counts["leaves"] += 1
                for number in range(2):
                    await self._leave(f"first {number}")
            await asyncio.sleep(CALM)
            self._over = True
            here = [wires for name, wires in self._wires.items() if name not in self._gone]
            for wire in itertools.chain.from_iterable(here):
                wire.mend()
            await asyncio.sleep(3 * self.quarantine)
            if not self._links_break:
                await self._judge_end(ours, theirs, leaves=leaves)
            for wire in itertools.chain.from_iterable(node.wires for node in pool):
                wire.mend()
        self._judge_exclusion()

    async def _client(
        self,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
        name: str,
        nodes: list[WiredNode],
    ) -> LockManager:
        self._places[name] = self.draw.sample(nodes, len(nodes))
        self._wires[name] = wires = [node.wire() for node in self._places[name]]
        if self._links_break and self.draw.random() < 0.7:
            self.draw.choice(wires).cut()
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
        if self._links_break:
            tasks.create_task(self._look(manager, name))
        return manager

    async def _leave(self, name: str) -> None:
        """Cut a client off, in whatever state it is; it asks no more."""
        await asyncio.sleep(self.draw.uniform(0, 1))
        self._gone.add(name)
        for wire in self._wires[name]:
            wire.cut()

    async def _work(self, manager: LockManager, name: str) -> None:
        """Take and give back the lock until the end."""
        draw = self.draw
        while not self._over and name not in self._gone:
            error = await self._hold(
                manager,
                name,
                lambda: draw.choice((draw.uniform(0, 0.3), 2 * self.quarantine)),
                extension=self._extension(),
                blocking_timeout=draw.uniform(0, 0.5),
            )
            if isinstance(error, ConfigurationError):
                self.counts[f"{name[:-2]} refused"] += 1
                if name.startswith("first") and not self._links_break:
                    raise ViolationError(Rule.OLDER, str(error)) from error
            self.counts["not acquired"] += isinstance(error, LockError)
            await asyncio.sleep(draw.uniform(0.01, 0.3))

    async def _trouble(self) -> None:
        """Trouble a node at a time."""
        draw = self.draw
        kinds = (WiredNode.disconnect, WiredNode.freeze, WiredNode.restart, WiredNode.flush)
        while not self._over:
            await asyncio.sleep(draw.uniform(0.5, 3))
            await self._strike(draw.choice(self.nodes), draw.choice(kinds), 1.0)

    async def _breaks(self, tasks: asyncio.TaskGroup) -> None:
        """Break single links, for a moment or for long."""
        draw = self.draw

        async def broken(wire: Wire, name: str) -> None:
            wire.cut()
            await asyncio.sleep(draw.choice((draw.uniform(0.2, 4), draw.uniform(0, 2 * self.quarantine))))
            if name not in self._gone:
                wire.mend()

        while not self._over:
            await asyncio.sleep(draw.uniform(0.1, 1.5))
            name = draw.choice(sorted(self._wires))
            self.counts["links broken"] += 1
            tasks.create_task(broken(draw.choice(self._wires[name]), name))
            if draw.random() < 0.05:
                node = draw.choice(self.nodes)
                await self._strike(node, WiredNode.restart, 1.0)
                self._contacts.forget(node, SimLoop.running().time())

    async def _look(self, manager: LockManager, name: str) -> None:
        """Look at which nodes a client reaches, until the end."""
        places = list(zip(self._places[name], self._wires[name], strict=True))
        while not self._over:
            states = [node.state for node in manager.statistics().nodes]
            votes = name not in self._gone and states.count(NodeState.UP) > self.size // 2
            now = SimLoop.running().time()
            for (node, wire), state in zip(places, states, strict=True):
                reached = state in (NodeState.UP, NodeState.QUARANTINED)
                cut = wire.requests_cut or node.frozen
                self._contacts.see(name, node, now, reached=reached, cut=cut, votes=votes)
            await asyncio.sleep(LOOK)

    def _judge_exclusion(self) -> None:
        """Raise if two bodies ran at once whose clients knew of each other."""
        if not self._links_break:
            judge_exclusion(self.holds, Rule.EXCLUSION)
        for one, other in itertools.combinations(sorted(self.holds, key=lambda hold: hold.began), 2):
            if other.began >= one.ended:
                continue
            knew = self._contacts.knew
            life = self.quarantine - 2 * EXCHANGED
            if one.client[:-2] == other.client[:-2] or (
                knew(other.client, one.client, other.began, life)
                and knew(one.client, other.client, one.began, life)
            ):
                raise ViolationError(Rule.EXCLUSION, f"{one}, {other}")
            self.counts["out of touch"] += 1

    async def _judge_end(self, ours: list[LockManager], theirs: list[LockManager], *, leaves: bool) -> None:
        for manager in () if leaves else ours:
            if (error := await self._refusal(manager, "last", 2)) is not None:
                raise ViolationError(Rule.OLDER, repr(error))
        for manager in theirs:
            error = await self._refusal(manager, "last", 2)
            if leaves and error is not None:
                raise ViolationError(Rule.FREE, repr(error))
            # One that ran before clients came to use the first list again goes on with what they share.
            noticed = isinstance(error, ConfigurationError) or manager.statistics().strangers
            if not leaves and not noticed:
                raise ViolationError(Rule.NOTICED, repr(error))
