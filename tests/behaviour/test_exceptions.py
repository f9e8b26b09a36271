"""Exceptions pass through a lock as they would without it (rule R7)."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

import anyio
import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LockManager, LossReason
from tests.behaviour.tools import PATIENCE, delete, extended, keys, quiet
from tests.servers import Nodes

FOREVER: Final = 3600.0


@pytest.fixture
async def manager(shared_nodes: Nodes) -> AsyncIterator[LockManager]:
    """Give a manager whose locks are extended often, so that losses are noticed soon."""
    often = ExtensionPolicy(every=1 / 30)
    async with quiet(), LockManager(shared_nodes.urls, ttl=6.0, extension=often) as manager:
        yield manager
    assert keys(shared_nodes.urls) == {}


async def lose(nodes: Nodes, lease: Lease) -> None:
    """Take the lock away and wait until the lease knows; needs a body that is not cancelled."""
    delete(nodes, range(5), f"redlock:{lease.name}")
    await lease.lost.wait()


def cancels() -> int:
    """Return how many cancellations the current task has not taken note of."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@pytest.mark.parametrize("kind", [ValueError, KeyError, StopIteration, BaseException, GeneratorExit])
async def test_the_bodys_own_exception(manager: LockManager, kind: type[BaseException]) -> None:
    """An exception of the body leaves as the same object, with nothing added to it."""
    error = kind("the body's own")
    lock = manager.lock("own")
    with pytest.raises(kind) as caught:
        async with lock:
            raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_loss_while_the_body_raises(manager: LockManager, shared_nodes: Nodes) -> None:
    """The body's own exception leaves also when the lock was lost; a note tells of the loss."""
    error = ValueError("the body's own")
    with pytest.raises(ValueError, match="own") as caught:
        async with manager.lock("noted") as lease:
            try:
                await lose(shared_nodes, lease)
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                raise error from None
    assert caught.value is error
    assert any("'noted'" in note and "lost" in note for note in caught.value.__notes__)
    assert cancels() == 0


async def test_loss_with_on_lost_raise_and_an_exception(manager: LockManager, shared_nodes: Nodes) -> None:
    """With `on_lost="raise"` the body's exception leaves with a note, too."""
    with pytest.raises(KeyError) as caught:
        async with manager.lock("noted", on_lost="raise") as lease:
            await lose(shared_nodes, lease)
            raise KeyError(1)
    assert any("lost" in note for note in caught.value.__notes__)


async def test_loss_ends_in_lock_lost_error(manager: LockManager, shared_nodes: Nodes) -> None:
    """Our own cancellation becomes `LockLostError`, and the task goes on as if never cancelled."""
    with pytest.raises(LockLostError) as lost:
        async with manager.lock("lost") as lease:
            await lose(shared_nodes, lease)
            await asyncio.sleep(FOREVER)
    assert lost.value.reason is LossReason.REFUSED
    assert lost.value.names == ("lost",)
    assert len(lost.value.votes) == 5
    assert isinstance(lost.value.__cause__, asyncio.CancelledError)
    assert cancels() == 0
    await asyncio.sleep(0)


async def test_a_body_that_swallows_the_cancellation(manager: LockManager, shared_nodes: Nodes) -> None:
    """A body that swallows our cancellation and ends is still told that its lock was lost."""
    with pytest.raises(LockLostError):
        async with manager.lock("swallowed") as lease:
            with contextlib.suppress(asyncio.CancelledError):
                await lose(shared_nodes, lease)
                await asyncio.sleep(FOREVER)
            await asyncio.sleep(0.01)  # cancelled once, not again and again
    assert cancels() == 0


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_timeout(manager: LockManager, where: str) -> None:
    """`asyncio.timeout` ends in `TimeoutError`, around the lock as well as inside it."""
    with pytest.raises(TimeoutError):
        if where == "outside":
            async with asyncio.timeout(0.05), manager.lock("timed"):
                await asyncio.sleep(FOREVER)
        else:
            async with manager.lock("timed"), asyncio.timeout(0.05):
                await asyncio.sleep(FOREVER)
    assert cancels() == 0


async def test_timeout_around_the_acquire(manager: LockManager, shared_nodes: Nodes) -> None:
    """`asyncio.timeout` around an acquire that waits ends in `TimeoutError`, and the wait is over."""
    async with LockManager(shared_nodes.urls) as other, other.lock("timed"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), manager.lock("timed"):
                pytest.fail("another client has it")
        assert manager.statistics().waiting == 0


async def test_cancel_from_outside(manager: LockManager) -> None:
    """A cancellation of the task leaves as it is: the same one, with its message."""
    inside = asyncio.Event()

    async def work() -> None:
        async with manager.lock("cancelled"):
            inside.set()
            await asyncio.sleep(FOREVER)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("from outside",)
    assert not hasattr(caught.value, "__notes__")
    assert task.cancelled()


async def test_cancel_from_outside_at_the_moment_of_the_loss(
    manager: LockManager, shared_nodes: Nodes
) -> None:
    """A task that is cancelled from outside while its lock is being lost ends cancelled."""

    async def work() -> None:
        async with manager.lock("both") as lease:
            await lose(shared_nodes, lease)  # we are cancelled in the next turn
            task = asyncio.current_task()
            assert task is not None
            task.cancel("from outside")
            await asyncio.sleep(FOREVER)

    task = asyncio.create_task(work())
    await asyncio.wait((task,), timeout=PATIENCE)
    assert task.cancelled()


async def test_timeout_at_the_moment_of_the_loss(manager: LockManager, shared_nodes: Nodes) -> None:
    """An outer `asyncio.timeout` that strikes together with the loss ends in `TimeoutError`."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as scope, manager.lock("both") as lease:
            await lose(shared_nodes, lease)
            scope.reschedule(0)
            await asyncio.sleep(FOREVER)
    assert cancels() == 0


async def test_anyio_scope_around_a_lock(manager: LockManager) -> None:
    """A cancel scope of anyio works around a lock."""
    with anyio.move_on_after(0.05) as scope:
        async with manager.lock("scoped"):
            await anyio.sleep(FOREVER)
    assert scope.cancelled_caught


async def test_nested_locks_lost_together(manager: LockManager) -> None:
    """When both of two nested locks are lost in one moment, the outer one's error leaves the outer block."""
    with pytest.raises(LockLostError) as lost:
        async with manager.lock("outer", ttl=0.6), manager.lock("inner", ttl=0.6):
            time.sleep(0.8)  # longer than their ttl
            await asyncio.sleep(FOREVER)
    assert lost.value.names == ("outer",)
    assert cancels() == 0


async def test_inner_lock_lost(manager: LockManager, shared_nodes: Nodes) -> None:
    """The loss of the inner of two locks leaves the outer one held."""
    async with manager.lock("outer") as outer:
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("inner") as inner:
                await lose(shared_nodes, inner)
                await asyncio.sleep(FOREVER)
        assert lost.value.names == ("inner",)
        outer.check()
        await extended(outer, outer.extensions + 1)


async def test_outer_lock_lost(manager: LockManager, shared_nodes: Nodes) -> None:
    """The loss of the outer of two locks ends both blocks with the outer's error."""
    with pytest.raises(LockLostError) as lost:
        async with manager.lock("outer") as outer, manager.lock("inner"):
            await lose(shared_nodes, outer)
            await asyncio.sleep(FOREVER)
    assert lost.value.names == ("outer",)
    assert cancels() == 0


async def test_task_group_in_the_body(manager: LockManager, shared_nodes: Nodes) -> None:
    """Tasks of a group in the body end with it when the lock is lost."""
    ended = 0

    async def child() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended += 1

    with pytest.raises(LockLostError):
        async with manager.lock("grouped"), asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(child())
            await asyncio.sleep(0)
            delete(shared_nodes, range(5), "redlock:grouped")
    assert ended == 3
    assert cancels() == 0


async def test_task_group_that_fails_during_the_loss(manager: LockManager, shared_nodes: Nodes) -> None:
    """A group in the body whose child fails while we cancel it leaves as its own group, with a note."""

    async def child() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            raise RuntimeError("clean-up failed")

    with pytest.raises(ExceptionGroup) as caught:
        async with manager.lock("grouped"), asyncio.TaskGroup() as group:
            group.create_task(child())
            await asyncio.sleep(0)
            delete(shared_nodes, range(5), "redlock:grouped")
    assert caught.group_contains(RuntimeError, match="clean-up failed")
    assert any("lost" in note for note in caught.value.__notes__)
    assert cancels() == 0
    await asyncio.sleep(0)
