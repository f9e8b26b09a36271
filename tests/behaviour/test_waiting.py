"""How long an acquire waits, and what it says when it gives up (rule R13)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
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
from tests.behaviour.tools import ALLOWANCE, PATIENCE, all_up, keys, quiet
from tests.servers import Nodes, ask

NODE_TIMEOUT: Final = 1.5  # seconds: more than a busy server takes to answer

HOLDER_TTL: Final = 10.0


@pytest.fixture
async def manager(shared_nodes: Nodes) -> AsyncIterator[LockManager]:
    """Give a manager over whole servers."""
    async with quiet(), LockManager(shared_nodes.urls, node_timeout=NODE_TIMEOUT) as manager:
        yield manager


@pytest.fixture
async def held(shared_nodes: Nodes) -> AsyncIterator[Lease]:
    """Hold the lock "held" from a second manager."""
    async with LockManager(shared_nodes.urls, extension=ExtensionPolicy.off()) as other:
        lease = await other.lock("held", ttl=HOLDER_TTL).acquire()
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
    """`retry_after` is the moment at which a majority will be free: the third of five different times."""
    for url, seconds in zip(shared_nodes.urls, times, strict=True):
        ask(url, "SET", "redlock:apart", "theirs", "PX", 10_000 * seconds)
    found = []
    for _ in range(20):
        error, _ = await _fails(manager, "apart", 0)
        assert isinstance(error, LockTakenError)
        found.append(error.retry_after)
    assert found == [pytest.approx(30.0, abs=2.0)] * 20


async def test_zero_tries_once(manager: LockManager, held: Lease, shared_nodes: Nodes) -> None:
    """`blocking_timeout=0`, `blocking=False` and `try_acquire` ask each node exactly once."""
    tries = [manager.lock("held", blocking_timeout=0).acquire, manager.lock("held", blocking=False).acquire]
    for count, attempt in enumerate(tries, start=1):
        with pytest.raises(LockTakenError):
            await attempt()
        assert manager.statistics().refused == count
    assert await manager.lock("held").try_acquire() is None
    assert manager.statistics().refused == 3
    lease = await manager.lock("free").try_acquire()
    assert lease is not None
    await lease.release()


async def test_taken_by_this_process(manager: LockManager) -> None:
    """A lock that this manager holds itself is told as taken, at once, with the time that is left."""
    async with manager.lock("ours") as lease:
        error, took = await _fails(manager, "ours", 0)
        assert isinstance(error, LockTakenError)
        assert error.retry_after == pytest.approx(lease.remaining, abs=ALLOWANCE)
        assert took <= ALLOWANCE

        async def other_task() -> None:
            error, took = await _fails(manager, "ours", 0.3)
            assert isinstance(error, LockTakenError)
            assert error.retry_after == pytest.approx(lease.remaining, abs=ALLOWANCE)
            assert 0.3 <= took <= 0.3 + ALLOWANCE

        await asyncio.create_task(other_task())


@pytest.mark.heavy
async def test_none_waits_until_it_is_free(manager: LockManager, held: Lease) -> None:
    """Without a timeout an acquire waits as long as the lock is taken, and comes soon after its release."""
    waiter = asyncio.create_task(manager.lock("held").acquire())
    done, _ = await asyncio.wait((waiter,), timeout=1.0)
    assert not done
    await held.release()
    lease = await asyncio.wait_for(waiter, 0.5 + ALLOWANCE)  # the longest back-off
    assert lease.held
    await lease.release()


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


async def test_a_key_without_expiry(manager: LockManager, shared_nodes: Nodes) -> None:
    """A key without expiry is an ordinary holder that names no time."""
    for url in shared_nodes.urls[1:4]:
        ask(url, "SET", "redlock:eternal", "another's")
    error, took = await _fails(manager, "eternal", 0.5)
    assert isinstance(error, LockTakenError)
    assert error.retry_after is None
    assert 0.5 <= took <= 0.5 + ALLOWANCE


@pytest.mark.heavy
@pytest.mark.parametrize("fault", ["frozen", "dead"])
@pytest.mark.parametrize("blocking_timeout", [0, 0.5])
async def test_without_a_quorum(nodes5: Nodes, fault: str, blocking_timeout: float) -> None:
    """Without a quorum the wait overshoots by one `node_timeout` at most; the votes name the silent nodes."""
    async with quiet(), LockManager(nodes5.urls, node_timeout=NODE_TIMEOUT) as manager:
        _strike(nodes5, fault)(0, 1, 2)
        error, took = await _fails(manager, "nowhere", blocking_timeout)
        assert isinstance(error, QuorumUnavailableError)
        assert took <= blocking_timeout + NODE_TIMEOUT + ALLOWANCE
        assert [vote.vote is Vote.SILENT for vote in error.votes] == [True] * 3 + [False] * 2
        assert all(vote.reason for vote in error.votes[:3])
        assert [vote.node for vote in error.votes] == nodes5.urls
        for i in range(3):
            nodes5.resume(i)
        nodes5.start()
        await all_up(manager)
    assert keys(nodes5.urls) == {}


@pytest.mark.heavy
@pytest.mark.parametrize("fault", ["frozen", "dead"])
async def test_taken_and_unavailable_are_told_apart(nodes5: Nodes, fault: str) -> None:
    """Two silent nodes and three that refuse mean taken; three silent and two that refuse mean no quorum."""
    async with quiet(), LockManager(nodes5.urls, node_timeout=NODE_TIMEOUT) as manager:
        for url in nodes5.urls:
            ask(url, "SET", "redlock:half", "theirs", "PX", 20_000)
        strike = _strike(nodes5, fault)
        strike(0, 1)
        error, _ = await _fails(manager, "half", 0)
        assert isinstance(error, LockTakenError)
        assert error.retry_after == pytest.approx(20.0, abs=3.0)
        assert sum(vote.vote is Vote.REFUSED for vote in error.votes) == 3
        strike(2)
        error, _ = await _fails(manager, "half", 0)
        assert isinstance(error, QuorumUnavailableError)
        assert sum(vote.vote is Vote.REFUSED for vote in error.votes) == 2
        assert sum(vote.vote is Vote.SILENT for vote in error.votes) == 3


async def test_the_last_try_decides_which_error_it_is(nodes3: Nodes) -> None:
    """When the nodes fall silent during the wait, the error tells of that and not of the holder before."""
    async with quiet(), LockManager(nodes3.urls, node_timeout=0.1) as manager:
        for url in nodes3.urls:
            ask(url, "SET", "redlock:first", "theirs", "PX", 20_000)
        task = asyncio.create_task(_fails(manager, "first", 1.0))
        while not manager.statistics().refused:
            await asyncio.sleep(0)
        nodes3.kill(0)
        nodes3.kill(1)
        error, took = await task
        assert isinstance(error, QuorumUnavailableError)
        assert took <= 1.0 + 0.1 + ALLOWANCE


async def test_the_deadline_includes_the_start(nodes3: Nodes) -> None:
    """Also the first use of a manager keeps its deadline when nodes take connections and answer nothing."""
    for i in range(3):
        nodes3.pause(i)
    manager = LockManager(nodes3.urls, node_timeout=0.1, connect_timeout=3.0)
    async with quiet():
        try:
            error, took = await _fails(manager, "lazy", 0)
            assert isinstance(error, QuorumUnavailableError)
            assert took <= 0.1 + ALLOWANCE
        finally:
            await manager.aclose()


async def test_waiters_of_one_process_report_what_the_nodes_said(nodes3: Nodes) -> None:
    """A waiter that times out behind another one reports the last verdict of the one that asks the nodes."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        nodes3.kill(0)
        nodes3.kill(1)
        lock = manager.lock("queued", blocking_timeout=0.6)
        began = time.monotonic()
        results = await asyncio.gather(*(lock.acquire() for _ in range(5)), return_exceptions=True)
        assert time.monotonic() - began <= 0.6 + 0.1 + ALLOWANCE
        for result in results:
            assert isinstance(result, QuorumUnavailableError)
            assert len(result.votes) == 3


async def test_waiters_of_one_process_come_in_order(manager: LockManager) -> None:
    """Tasks of one process get a lock in the order in which they asked for it."""
    order: list[int] = []

    async def work(number: int) -> None:
        async with manager.lock("line"):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(50)))
    assert order == list(range(50))


def _strike(nodes: Nodes, fault: str) -> Callable[..., None]:
    def strike(*indexes: int) -> None:
        for i in indexes:
            if fault == "frozen":
                nodes.pause(i)
            else:
                nodes.kill(i)

    return strike
