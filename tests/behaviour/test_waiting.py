"""The length of an acquire's wait, and its error (rule R13); ``unit/test_waiting.py`` has each case."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest

from aioredlock_ng import (
    ExtensionPolicy,
    Lease,
    LockManager,
    LockNotAcquiredError,
    LockTakenError,
    Vote,
)
from tests.behaviour.tools import ALLOWANCE, PATIENCE, quiet
from tests.servers import Nodes, ask

NODE_TIMEOUT: Final = 1.5  # seconds: more than a busy server takes to answer


@pytest.fixture
async def manager(shared_nodes: Nodes) -> AsyncIterator[LockManager]:
    """Give a manager over whole servers."""
    async with quiet(), LockManager(shared_nodes.urls, node_timeout=NODE_TIMEOUT) as manager:
        yield manager


@pytest.fixture
async def held(shared_nodes: Nodes) -> AsyncIterator[Lease]:
    """Hold the lock "held" from a second manager."""
    async with LockManager(shared_nodes.urls, extension=ExtensionPolicy.off()) as other:
        lease = await other.lock("held", ttl=10.0).acquire()
        yield lease
        await lease.release()


async def _fails(
    manager: LockManager, name: str, blocking_timeout: float
) -> tuple[LockNotAcquiredError, float]:
    began = time.monotonic()
    with pytest.raises(LockNotAcquiredError) as failure:
        await manager.lock(name, blocking_timeout=blocking_timeout).acquire()
    return failure.value, time.monotonic() - began


@pytest.mark.parametrize("blocking_timeout", [0, 0.5])
async def test_taken(manager: LockManager, held: Lease, shared_nodes: Nodes, blocking_timeout: float) -> None:
    """A lock that stays taken ends the wait in time, with every node's vote and the time that is left."""
    error, took = await _fails(manager, "held", blocking_timeout)
    left = sorted(ask(url, "PTTL", "redlock:held") / 1000 for url in shared_nodes.urls)[2]
    assert isinstance(error, LockTakenError)
    assert blocking_timeout <= took <= blocking_timeout + ALLOWANCE, "no node was silent"
    assert error.names == ("held",)
    assert [vote.node for vote in error.votes] == shared_nodes.urls
    assert sum(vote.vote is Vote.REFUSED for vote in error.votes) >= 3
    assert error.retry_after is not None
    assert left <= error.retry_after <= left + ALLOWANCE
    assert held.held


async def test_it_comes_when_the_holder_ends_without_release(
    manager: LockManager, shared_nodes: Nodes
) -> None:
    """A waiter gets a lock whose holder died soon after the keys' time has run out, and not before."""
    began = time.monotonic()
    for url in shared_nodes.urls:
        ask(url, "SET", "redlock:dead", "another's", "PX", 800)
    lease = await asyncio.wait_for(manager.lock("dead").acquire(), PATIENCE)
    assert 0.75 <= time.monotonic() - began <= 0.8 + ALLOWANCE
    await lease.release()
