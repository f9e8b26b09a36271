"""The testing kit as users' own tests write it.  Never run: ``mypy --strict`` reads it."""

from __future__ import annotations

from collections.abc import Iterator
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
    bypass,
    lose,
)


async def test_forced_losses(lock_manager: LockManager) -> None:
    """A loss with its default reason and with either of the two."""
    async with lock_manager.lock("job"):
        lose(lock_manager, "job")
        lose(lock_manager, "job", LossReason.EXPIRED)
        lose(lock_manager, "job", reason=LossReason.REFUSED)


async def test_real_nodes(redlock_nodes: LocalNodes) -> None:
    """A test of servers that fail."""
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


def nodes_at(*latencies: Latency) -> list[MemoryNode]:
    """A helper that passes on how long messages take."""
    return [MemoryNode(latency=latency) for latency in latencies]


def set_back(node: MemoryNode, state: Snapshot | None = None) -> Snapshot:
    """A helper that keeps a state, and comes back with it."""
    node.restart(from_=state)
    node.refuse("LOADING")
    assert_type((node.frozen, node.refusal), tuple[bool, str])
    return node.snapshot()


async def on_virtual_time() -> None:
    """A manager of one's own on a `SimLoop`."""
    assert_type(SimLoop.running(), SimLoop)
    nodes = nodes_at(0, 0.001, lambda: 0.002)
    async with LockManager(nodes, clock=SimLoop.running().clock) as manager, manager.lock("job"):
        SimLoop.running().suspend(5)


def lazily(error: aioredlock_ng.LockLostError) -> aioredlock_ng.LockManager:
    """Names of the package are what they are, although they are imported late."""
    assert_type(error.reason, LossReason)
    assert_type(aioredlock_ng.errors.LockLostError("x", reason=error.reason), aioredlock_ng.LockLostError)
    assert_type(aioredlock_ng.events.Hooks, type[aioredlock_ng.Hooks])
    return aioredlock_ng.LockManager(["redis://a"])
