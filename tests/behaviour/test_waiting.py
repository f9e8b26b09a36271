"""How long an acquire waits, and what it says then (rule R13); ``unit/test_waiting.py`` has each case."""

from __future__ import annotations

import asyncio
import contextlib
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
    QuorumUnavailableError,
    Vote,
)
from tests.behaviour.tools import ALLOWANCE, PATIENCE, all_up, quiet, strike
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


@pytest.mark.parametrize("times", [(1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (3, 5, 1, 4, 2)])
async def test_the_time_that_is_left_is_the_majoritys(
    manager: LockManager, shared_nodes: Nodes, times: tuple[int, ...]
) -> None:
    """`retry_after` is the moment at which a majority will be free: the third of five different times.

    It is never earlier.  A node that is slow to tell counts as one that stays, so that it may be later.
    """
    for url, seconds in zip(shared_nodes.urls, times, strict=True):
        ask(url, "SET", "redlock:apart", "theirs", "PX", 10_000 * seconds)
    found = []
    for _ in range(20):
        error, _ = await _fails(manager, "apart", 0)
        assert isinstance(error, LockTakenError)
        found.append(error.retry_after)
    assert min(found) == pytest.approx(30.0, abs=2.0)


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


@pytest.mark.heavy
@pytest.mark.parametrize("fault", ["frozen", "dead"])
@pytest.mark.parametrize("blocking_timeout", [0, 0.5])
async def test_without_a_quorum(nodes5: Nodes, fault: str, blocking_timeout: float) -> None:
    """The wait overshoots by one `node_timeout` at most, and the votes name the silent nodes.

    Two silent nodes and three that refuse mean taken; three silent and two that refuse mean no quorum.
    """
    async with quiet(), LockManager(nodes5.urls, node_timeout=NODE_TIMEOUT) as manager:
        for url in nodes5.urls:
            ask(url, "SET", "redlock:half", "theirs", "PX", 20_000)
        strike(nodes5, fault, 0, 1)
        error, _ = await _fails(manager, "half", 0)
        assert isinstance(error, LockTakenError)
        assert error.retry_after == pytest.approx(20.0, abs=3.0)
        assert sum(vote.vote is Vote.REFUSED for vote in error.votes) == 3
        strike(nodes5, fault, 2)
        error, took = await _fails(manager, "half", blocking_timeout)
        assert isinstance(error, QuorumUnavailableError)
        assert took <= blocking_timeout + NODE_TIMEOUT + ALLOWANCE
        assert [vote.vote for vote in error.votes] == [Vote.SILENT] * 3 + [Vote.REFUSED] * 2
        assert all(vote.reason for vote in error.votes[:3])
        assert [vote.node for vote in error.votes] == nodes5.urls
        for i in range(3):
            nodes5.resume(i)
        nodes5.start()
        await all_up(manager)


async def test_the_deadline_includes_the_start(nodes3: Nodes) -> None:
    """Also the first use of a manager keeps its deadline when nodes take connections and answer nothing."""
    strike(nodes3, "frozen", 0, 1, 2)
    manager = LockManager(nodes3.urls, node_timeout=0.1, connect_timeout=3.0)
    async with quiet(), contextlib.aclosing(manager):
        error, took = await _fails(manager, "lazy", 0)
        assert isinstance(error, QuorumUnavailableError)
        assert took <= 0.1 + ALLOWANCE
