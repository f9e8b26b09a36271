"""One run of the search for fences that repeat or are out of order (R10 to R12, R21, R23, R25).

The shipping manager over masters in memory, on virtual time; one seed decides everything.  Nothing that
exclusion rests on is kept: clocks are apart, nodes come back empty or with older data, locks are deleted, and
counters expire.  Fences must be unique and in order all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, cast

from aioredlock_ng import ConfigurationError, Lease, Lock, LockError, LockManager
from aioredlock_ng._core.fencing import MIN_FENCE_TTL
from aioredlock_ng.testing import SimLoop
from tests.simulation import searching
from tests.simulation.checks import check
from tests.simulation.checks_words import Rule
from tests.simulation.history import Claim, History, Mode
from tests.simulation.searching import NAME, ViolationError
from tests.simulation.wires import WiredNode
from tests.unit.traces import PREFIX

RULES: Final = (Rule.UNIQUE, Rule.ORDER, Rule.UNCHANGED)

MIXES: Final[tuple[tuple[Mode, ...], ...]] = (
    ("lock",),
    ("lock", "fair"),
    ("read", "read", "write"),
    ("read", "write", "write", "lock"),
    ("permit",),
)
"""The modes in which the calls of a run want the name."""

PERMITS: Final = 2
ROUNDS: Final = 12
"""Turns of each client between two long pauses."""


class World(searching.World):
    """One run; `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        super().__init__("fences", seed)
        draw = self.draw
        self.size = draw.choice((1, 2, 3, 3, 4, 5))
        self.modes = draw.choice(MIXES)
        self.offsets = [draw.choice((0, draw.uniform(-9, 9), 15, -15, 400)) for _ in range(self.size)]
        self.quarantine = draw.choice((0.0, 0.0, 1.0))
        self.keeps = draw.sample((MIN_FENCE_TTL, 2 * MIN_FENCE_TTL), 2)
        self.claims: list[Claim] = []
        self._old: dict[int, Any] = {}
        """The older data of each node."""

    def __str__(self) -> str:
        return f"{self.size} nodes, {self.modes}, {self.offsets}; {dict(self.counts)}"

    async def _main(self) -> None:
        draw = self.draw
        self.nodes = [
            WiredNode(latency=lambda: draw.uniform(0.0002, 0.02), clock_offset=offset)
            for offset in self.offsets
        ]
        async with contextlib.AsyncExitStack() as stack:
            for number in range(draw.randint(1, 3)):
                if number:
                    self.counts["long pause"] += 1
                    await asyncio.sleep(MIN_FENCE_TTL - draw.choice((-1, 0, 1, 12)))
                managers = [
                    await self._manager(
                        stack,
                        [node.wire() for node in self.nodes],
                        ttl=1.0,
                        restart_quarantine=self.quarantine,
                        fence_ttl=keep,
                    )
                    for keep in self.keeps
                ]
                async with asyncio.TaskGroup() as tasks:
                    trouble = tasks.create_task(self._trouble())
                    async with asyncio.TaskGroup() as clients:
                        for client, manager in enumerate(managers):
                            clients.create_task(self._work(manager, client))
                    trouble.cancel()
                await stack.aclose()
        history = History(nodes=self.size, clients=2, claims=self.claims)
        for violation in check(history, rules=RULES, bound=0.0):
            raise ViolationError(violation.rule, violation.text)

    async def _work(self, manager: LockManager, client: int) -> None:
        draw, now = self.draw, SimLoop.running().time
        read: Lease | None = None
        for _ in range(ROUNDS):
            mode = draw.choice(self.modes)
            asked = now()
            try:
                lock = self._lock(manager, mode, read)
                async with asyncio.timeout(draw.choice((0.03, 2.0, 2.0))), lock as lease:
                    self._claim(client, mode, asked, lease, read)
                    read = lease if mode == "read" else read
                    await asyncio.sleep(draw.choice((0, 0, draw.uniform(0, 0.3))))
            except (LockError, ConfigurationError, TimeoutError) as error:
                self.counts[type(error).__name__] += 1
            await asyncio.sleep(draw.choice((0, draw.uniform(0, 0.2))))

    def _lock(self, manager: LockManager, mode: Mode, read: Lease | None) -> Lock:
        options: dict[str, Any] = {"blocking_timeout": self.draw.uniform(0, 1)}
        if mode == "permit":
            return manager.semaphore(NAME, permits=PERMITS, **options)
        if mode in ("lock", "fair"):
            return manager.lock(NAME, fair=mode == "fair", **options)
        if mode == "read":
            return manager.rwlock(NAME).read(**options)
        return manager.rwlock(NAME).write(since=read, **options)

    def _claim(self, client: int, mode: Mode, asked: float, lease: Lease, read: Lease | None) -> None:
        now = SimLoop.running().time()
        self.counts.update(("won", f"{mode} won"))
        self.claims.append(
            Claim(
                client=client,
                task=0,
                names=(NAME,),
                owner=lease._holding.owner,
                fence=lease.fence,
                asked=asked,
                since=now,
                until=now,
                stopped=now,
                mode=mode,
                unchanged_since=read.fence if mode == "write" and read and lease.unchanged else None,
                slot=lease.slot if mode == "permit" else None,
                permits=PERMITS if mode == "permit" else 0,
            )
        )

    # -- trouble ---------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        draw = self.draw
        kinds, pause = draw.sample(list(TROUBLE), 3), draw.choice((0.1, 0.5, 2.0))
        while True:
            await asyncio.sleep(draw.uniform(0, pause))
            kind, number = draw.choice(kinds), draw.randrange(self.size)
            self.counts[kind] += 1
            TROUBLE[kind](self, number)

    def _delete(self, _number: int) -> None:
        for node in self.nodes:
            node.delete(PREFIX + NAME.encode())

    def _cut(self, number: int) -> None:
        """Hold up what one client sends to a node, or hears from it, for a while."""
        wire = self.draw.choice(self.nodes[number].wires)
        wire.cut(replies=self.draw.random() < 0.5)
        SimLoop.running().call_later(self.draw.uniform(0, 1.5), wire.mend)

    def _keep(self, number: int) -> None:
        self._old[number] = self.nodes[number].snapshot()

    def _relapse(self, number: int) -> None:
        self.nodes[number].restart(from_=self._old.get(number))
        self._keep(number)


def _each(act: Callable[[WiredNode], object]) -> Callable[[World, int], None]:
    return lambda world, number: cast("None", act(world.nodes[number]))


TROUBLE: Final[dict[str, Callable[[World, int], None]]] = {
    "delete": World._delete,
    "cut": World._cut,
    "keep": World._keep,
    "relapse": World._relapse,
    "restart": _each(WiredNode.restart),
    "flush": _each(WiredNode.flush),
    "disconnect": _each(WiredNode.disconnect),
    "delete one": _each(lambda node: node.delete(PREFIX + NAME.encode())),
}
"""Acts of the adversary on one node, by its number, or on all."""
