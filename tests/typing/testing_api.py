"""The testing kit as users' own tests write it.  Never run: ``mypy --strict`` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_type

import pytest

import aioredlock_ng
from aioredlock_ng import LockManager, LossReason
from aioredlock_ng.testing import (
    Latency,
    LocalNodes,
    MemoryNode,
    SimLoop,
    Snapshot,
    Wire,
    bypass,
    faults,
    lose,
)
from aioredlock_ng.testing.faults import Fault, play


async def test_forced_losses(lock_manager: LockManager) -> None:
    """A loss with its default reason and with either of the two."""
    async with lock_manager.lock("job"):
        lose(lock_manager, "job")
        lose(lock_manager, "job", LossReason.EXPIRED)
        lose(lock_manager, "job", reason=LossReason.REFUSED)


async def test_real_nodes(redlock_nodes: LocalNodes) -> None:
    """What a test does to servers."""
    assert_type(redlock_nodes.urls, list[str])
    redlock_nodes.kill(0)
    redlock_nodes.pause(1)
    redlock_nodes.resume(1)
    await redlock_nodes.restart(0)


@pytest.fixture(autouse=True)
def no_nodes() -> Iterator[None]:
    """A fixture of the user's own around the bypass; code after the block is reached."""
    with bypass() as nothing:
        assert_type(nothing, None)
        yield
    print("after")
    with bypass(refuse=True), bypass(refuse="quorum"), bypass(refuse=False):
        pass


ALL_KINDS: list[Fault] = [
    faults.Stall(at=0.5, node=0, lasts=2.0),
    faults.Restart(at=0.5, node=1, lasts=2.0, keep_data=True),
    faults.Relapse(at=0.5, node=2, lasts=2.0),
    faults.FlushData(at=0.5, node=0),
    faults.FlushScripts(at=0.5, node=0),
    faults.Refusal(at=0.5, node=0, lasts=2.0, error="BUSY Redis is busy running a script."),
    faults.Disconnect(at=0.5, node=0),
    faults.ClockStep(at=0.5, node=0, seconds=-5.0),
    faults.ClockRate(at=0.5, node=0, lasts=2.0, rate=1.01),
    faults.Partition(at=0.5, node=0, lasts=2.0, client=1, requests=False),
    faults.Delay(at=0.5, node=0, lasts=2.0, seconds=0.05),
    faults.Loss(at=0.5, node=0, lasts=2.0, client=None, share=0.2),
    faults.BreakBefore(at=0.5, node=0, client=0),
    faults.BreakAfter(at=0.5, node=0),
]


class Amnesia(Fault):
    """A fault of one's own."""

    def begin(self, nodes: Sequence[MemoryNode]) -> faults.End:
        """Forget everything, and in the end the scripts once more."""
        nodes[self.node].flush()
        return nodes[self.node].flush_scripts


async def test_faults() -> None:
    """Clients with ways of their own to masters in memory, and what goes wrong there."""
    nodes = [MemoryNode(latency=0.001), MemoryNode("b", clock_offset=1.0), MemoryNode(latency=lambda: 0.1)]
    wires = [node.wire() for node in nodes]
    async with LockManager(nodes) as shared, LockManager(wires) as own:
        async with play(nodes, ALL_KINDS) as nothing:
            assert_type(nothing, None)
            await own.lock("job").try_acquire()
        async with play(tuple(nodes), (kind for kind in ALL_KINDS if kind.node == 0)), shared.lock("job"):
            nodes[0].refuse("LOADING")
            nodes[0].start()
            assert_type(nodes[0].clock_rate, float)
        wires[0].cut(replies=False)
        wires[0].mend()
        wires[0].break_before()
        wires[0].break_after()
        wires[0].extra = 0.1


def nodes_at(*latencies: Latency) -> list[MemoryNode]:
    """A helper that passes on how long messages take."""
    return [MemoryNode(latency=latency) for latency in latencies]


def ways(nodes: list[MemoryNode]) -> list[Wire]:
    """A helper that returns ways of a client's own, which are nodes to a manager."""
    wires = [node.wire() for node in nodes]
    assert_type((wires, nodes[0].wires), tuple[list[Wire], list[Wire]])
    LockManager(wires)
    return wires


def set_back(node: MemoryNode, state: Snapshot | None = None) -> Snapshot:
    """A helper that keeps a state, and comes back with it."""
    node.restart(from_=state)
    assert_type((node.frozen, node.refusal), tuple[bool, str])
    return node.snapshot()


async def on_virtual_time() -> None:
    """A manager of one's own on a `SimLoop`."""
    assert_type(SimLoop.running(), SimLoop)
    nodes = nodes_at(0, 0.001, lambda: 0.002)
    async with LockManager(nodes, clock=SimLoop.running().clock) as manager, manager.lock("job"):
        SimLoop.running().suspend(5)


def by_hand() -> None:
    """Loops side by side."""
    loop = SimLoop()
    assert_type(loop.next_turn, float)
    loop.run_ready(loop.next_turn)


def lazily(error: aioredlock_ng.LockLostError) -> aioredlock_ng.LockManager:
    """Names of the package are what they are, although they are imported late."""
    assert_type(error.reason, LossReason)
    assert_type(aioredlock_ng.errors.LockLostError("x", reason=error.reason), aioredlock_ng.LockLostError)
    assert_type(aioredlock_ng.events.Hooks, type[aioredlock_ng.Hooks])
    return aioredlock_ng.LockManager(["redis://a"])
