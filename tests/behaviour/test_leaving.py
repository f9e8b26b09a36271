"""A lock may be left in another task than it was entered, and in any order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from aioredlock_ng import Lease, LockLostError, LockManager, LossReason, ReleaseOutcome
from tests.behaviour.tools import delete, extended, keys, quiet
from tests.servers import Nodes

FOREVER: Final = 3600.0


@pytest_asyncio.fixture
async def manager(shared_nodes: Nodes) -> AsyncIterator[LockManager]:
    """Give a manager; afterwards nothing may be left."""
    async with quiet(), LockManager(shared_nodes.urls, ttl=1.0) as manager:
        yield manager
        assert manager.statistics().held == 0
    assert keys(shared_nodes.urls) == {}


@pytest_asyncio.fixture
async def lease(manager: LockManager) -> AsyncIterator[Lease]:
    """Hold a lock from the set-up to the tear-down of a test, and another one around it."""
    async with manager.lock("outer fixture") as outer, manager.lock("fixture") as lease:
        yield lease
        outer.check()


async def test_a_fixture_holds_a_lock(manager: LockManager, lease: Lease) -> None:
    """It is extended while the test runs, whatever else is cancelled, and the test may release it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01), manager.lock("own"):
            await asyncio.sleep(FOREVER)
    await extended(lease, 2)
    lease.check()
    await lease.release()


@pytest.fixture
async def lost_in_between(shared_nodes: Nodes) -> AsyncIterator[Lease]:
    """Hold a lock that the test loses: the tear-down raises, here where it can be seen."""
    async with quiet(), LockManager(shared_nodes.urls, ttl=0.6) as manager:
        with pytest.raises(LockLostError):
            async with manager.lock("lost in between") as lease:
                yield lease


async def test_a_fixtures_lock_is_lost(shared_nodes: Nodes, lost_in_between: Lease) -> None:
    """Losing a fixture's lock cancels no test that runs in another task; the tear-down tells of it."""
    delete(shared_nodes, range(5), "redlock:lost in between")
    await lost_in_between.lost.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(LockLostError) as lost:
        lost_in_between.check()
    assert lost.value.reason is LossReason.REFUSED


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_exit_stacks_closed_by_other_tasks(manager: LockManager, order: tuple[int, ...]) -> None:
    """In any order, by other tasks than those that filled them, which have ended or not."""
    stacks = [contextlib.AsyncExitStack() for _ in range(3)]

    async def enter(i: int) -> Lease:
        return await stacks[i].enter_async_context(manager.lock(f"stack:{i}"))

    leases = [await enter(0), await asyncio.create_task(enter(1)), await asyncio.create_task(enter(2))]
    for closed, i in enumerate(order, start=1):
        await asyncio.create_task(stacks[i].aclose())
        assert [lease.held for lease in leases] == [j not in order[:closed] for j in range(3)]


async def test_hand_over_hand(manager: LockManager) -> None:
    """Blocks overlap without nesting; a lease is released by several tasks at once, all told the same."""
    before = manager.lock("hand:0")
    lease = await before.__aenter__()
    for i in range(1, 20):
        lock = manager.lock(f"hand:{i}")
        following = await lock.__aenter__()
        await before.__aexit__(None, None, None)
        assert (lease.held, following.held) == (False, True)
        before, lease = lock, following
    reports = await asyncio.gather(*(asyncio.create_task(lease.release()) for _ in range(3)))
    assert reports[0].count(ReleaseOutcome.RELEASED) == 5
    assert reports == [reports[0]] * 3
    await before.__aexit__(None, None, None)


async def test_a_lease_travels(manager: LockManager, shared_nodes: Nodes) -> None:
    """A lease that was acquired by one task becomes the deadline of the task that enters it."""
    lease = await asyncio.create_task(manager.lock("travels").acquire())

    async def use() -> None:
        async with lease:
            delete(shared_nodes, range(5), "redlock:travels")
            await asyncio.sleep(FOREVER)

    with pytest.raises(LockLostError):
        await asyncio.create_task(use())
