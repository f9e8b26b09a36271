"""Small worlds on virtual time: masters in memory, a manager over them, and what must hold at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aioredlock_ng import ExtensionPolicy, Lease, LockManager, NodeState
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.simulation.wires import WiredNode
from tests.unit.tasks import sim
from tests.unit.traces import PREFIX, counter, locks

PLAIN = ExtensionPolicy.off()
TTL = 10.0
TIMEOUT = 0.1
LATENCY = 0.001
ROUND_TRIP = 2 * LATENCY
GRACE = ExtensionPolicy().grace

STRANGER = b"a stranger"
"""A value that another program writes under a lock."""

ANOTHER = b"%b:%013d:another" % (b"5eed" * 10, 1_700_000_000_000)
"""A value of another process of this package."""


class each:  # noqa: N801 (a word in a sentence: ``each(w.nodes).freeze()``)
    """Some nodes, of each of which a method is called with the same arguments."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self._nodes = tuple(nodes)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what calls that method of each."""
        return lambda *arguments, **options: [
            getattr(node, name)(*arguments, **options) for node in self._nodes
        ]


def deadline(lease: Lease, ttl: float = TTL) -> float:
    """Return the moment at which the body of a lease has to stop."""
    return lease.valid_until - GRACE * ttl


@dataclass(slots=True)
class World:
    """Nodes, and the managers over them that were opened; each stands for a process of its own."""

    nodes: list[WiredNode]
    manager: LockManager
    seeds: Any = field(default_factory=lambda: iter(range(2, 1_000)))
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def keys(self) -> list[tuple[bytes, ...]]:
        """Return the keys on every node, but for counters and incarnation records."""
        return [locks(node) for node in self.nodes]

    def holders(self, name: str) -> list[bytes | None]:
        """Return the value under a lock's name on every node."""
        return [node.get(PREFIX + name.encode()) for node in self.nodes]

    def occupy(self, name: str, ttl: float | None, *nodes: int, value: bytes = STRANGER) -> None:
        """Let a stranger hold a name on some nodes, without a number on all; or the value's holder."""
        for index in nodes or range(len(self.nodes)):
            self.nodes[index].set(PREFIX + name.encode(), value, ttl)

    def vacate(self, name: str, *nodes: int) -> None:
        """Delete a name's key on some nodes, without a number on all."""
        for index in nodes or range(len(self.nodes)):
            self.nodes[index].delete(PREFIX + name.encode())

    @contextlib.asynccontextmanager
    async def process(self, **options: Any) -> AsyncIterator[LockManager]:
        """Open one more manager over the same nodes, as another process would."""
        async with opened(self.nodes, seed=next(self.seeds), **options) as manager:
            yield manager


def ago(seconds: float) -> int:
    """Return the fence that belongs to some seconds ago, by a right clock."""
    return round((EPOCH + sim().clock.now() - seconds) * 1000) << 10


def put(w: World, name: str, *fences: int | None) -> None:
    """Have the nodes' counters stand somewhere; None leaves one as it is."""
    for node, fence in zip(w.nodes, fences, strict=True):
        if fence is not None:
            node.set(counter(name), b"%d" % fence, 600.0)


@contextlib.asynccontextmanager
async def opened(nodes: list[WiredNode], *, seed: int = 1, **options: Any) -> AsyncIterator[LockManager]:
    """Open a manager over `nodes`; at the end no key and no task of its may be left."""
    before = asyncio.all_tasks()
    manager = make(nodes, seed=seed, **options)
    async with manager:
        yield manager
    left = {task for task in asyncio.all_tasks() - before if "aioredlock_ng" in task.get_name()}
    assert not left, left


def make(nodes: Sequence[Any], *, seed: int = 1, **options: Any) -> LockManager:
    """Make a manager on virtual time and with a seed; it is not started."""
    return LockManager(nodes, clock=sim().clock, random=random.Random(seed), **options)


@contextlib.asynccontextmanager
async def world(
    number: int = 3, *, latency: float | Callable[[], float] = LATENCY, **options: Any
) -> AsyncIterator[World]:
    """Open a world of `number` nodes and one manager; at the end no task of its may be left."""
    nodes = [WiredNode(latency=latency) for _ in range(number)]
    async with opened(nodes, **options) as manager:
        yield World(nodes, manager)


def states(w: World) -> list[NodeState]:
    """Return how the nodes stand."""
    return [node.state for node in w.manager.statistics().nodes]


def heard(w: World, name: str) -> list[int]:
    """Return how many connections listen for releases of a name on each node."""
    replies = [node.execute([b"PUBSUB", b"NUMSUB", PREFIX + name.encode()]) for node in w.nodes]
    return [int(reply.rsplit(b":", 1)[1]) for reply in replies]


def conflict(manager: LockManager, why: str | None = "two nodes are one server") -> None:
    """Let a manager find out that its nodes are no quorum, or that they are one again (A4)."""
    manager._life.session.availability.conflict = why  # type: ignore[union-attr]
