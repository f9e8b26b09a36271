"""A lock may be left in another task than it was entered, and in any order."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

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
    """Hold a lock from the set-up to the tear-down of a test."""
    async with manager.lock("fixture") as lease:
        yield lease


@pytest_asyncio.fixture
async def second_lease(manager: LockManager, lease: Lease) -> AsyncIterator[Lease]:
    """Hold a second lock inside the first."""
    async with manager.lock("second fixture") as second:
        yield second


async def test_a_fixture_holds_a_lock(lease: Lease, second_lease: Lease) -> None:
    """Locks of async generator fixtures are held, and extended, while the test runs."""
    for one in (lease, second_lease):
        await extended(one, 2)
        one.check()


async def test_a_fixture_whose_test_fails(manager: LockManager, lease: Lease) -> None:
    """A fixture's lock does not mind exceptions and cancellations in the test."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01), manager.lock("own"):
            await asyncio.sleep(FOREVER)
    lease.check()


async def test_a_fixture_whose_lock_is_released_by_the_test(lease: Lease) -> None:
    """A test may release the lock of its fixture; leaving it afterwards is no error."""
    await lease.release()
    assert not lease.held


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
async def test_exit_stacks_in_any_order(manager: LockManager, order: tuple[int, ...]) -> None:
    """Locks on exit stacks are released one by one, in whatever order the stacks are closed."""
    stacks = [contextlib.AsyncExitStack() for _ in range(3)]
    leases = [await stack.enter_async_context(manager.lock(f"stack:{i}")) for i, stack in enumerate(stacks)]
    for closed, i in enumerate(order, start=1):
        await stacks[i].aclose()
        assert [lease.held for lease in leases] == [j not in order[:closed] for j in range(3)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_exit_stacks_closed_by_other_tasks(manager: LockManager, order: tuple[int, ...]) -> None:
    """Exit stacks may be closed by other tasks than those that filled them, which have ended or not."""
    stacks = [contextlib.AsyncExitStack() for _ in range(3)]

    async def enter(i: int) -> Lease:
        return await stacks[i].enter_async_context(manager.lock(f"stack:{i}"))

    leases = [await enter(0), await asyncio.create_task(enter(1)), await asyncio.create_task(enter(2))]
    for closed, i in enumerate(order, start=1):
        await asyncio.create_task(stacks[i].aclose())
        assert [lease.held for lease in leases] == [j not in order[:closed] for j in range(3)]


async def test_one_exit_stack_with_a_failing_body(manager: LockManager) -> None:
    """A stack of locks unwinds completely when its body raises."""
    leases: list[Lease] = []
    with pytest.raises(ZeroDivisionError):
        async with contextlib.AsyncExitStack() as stack:
            leases += [await stack.enter_async_context(manager.lock(f"stack:{i}")) for i in range(5)]
            raise ZeroDivisionError
    assert not any(lease.held for lease in leases)


async def test_one_lock_object_in_many_tasks(manager: LockManager) -> None:
    """One lock object is entered by many tasks at once; each gets a lease of its own, one at a time."""
    lock = manager.lock("shared object")
    inside = 0
    seen: set[int] = set()

    async def work() -> None:
        nonlocal inside
        async with lock as lease:
            inside += 1
            assert inside == 1
            seen.add(id(lease))
            leases.append(lease)
            await asyncio.sleep(0.001)
            inside -= 1

    leases: list[Lease] = []
    await asyncio.gather(*(work() for _ in range(30)))
    assert len(seen) == 30


async def test_release_from_another_task(manager: LockManager) -> None:
    """Any task may release a lease, several at once too; all are told the same."""
    lease = await manager.lock("handed over").acquire()
    reports = await asyncio.gather(*(asyncio.create_task(lease.release()) for _ in range(3)))
    assert reports[0].count(ReleaseOutcome.RELEASED) == 5
    assert reports == [reports[0]] * 3


async def test_release_under_a_running_body(manager: LockManager) -> None:
    """Releasing a lease whose body runs in another task cancels no task; `check` tells of it."""
    leases: list[Lease] = []
    released = asyncio.Event()

    async def body() -> None:
        async with manager.lock("released early") as lease:
            leases.append(lease)
            await released.wait()
            await asyncio.sleep(0.01)
            with pytest.raises(LockLostError) as lost:
                lease.check()
            assert lost.value.reason is LossReason.RELEASED

    task = asyncio.create_task(body())
    while not leases:
        await asyncio.sleep(0)
    await leases[0].release()
    released.set()
    await task


async def test_hand_over_hand(manager: LockManager) -> None:
    """Locks are taken hand over hand: the next before the one before it is let go."""
    lease = await manager.lock("hand:0").acquire()
    for i in range(1, 20):
        following = await manager.lock(f"hand:{i}").acquire()
        await lease.release()
        assert following.held
        lease = following
    await lease.release()


async def test_hand_over_hand_with_blocks(manager: LockManager) -> None:
    """Hand over hand with context managers that overlap and do not nest."""
    before = manager.lock("hand:0")
    lease = await before.__aenter__()
    for i in range(1, 20):
        lock = manager.lock(f"hand:{i}")
        following = await lock.__aenter__()
        await before.__aexit__(None, None, None)
        assert (lease.held, following.held) == (False, True)
        before, lease = lock, following
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
