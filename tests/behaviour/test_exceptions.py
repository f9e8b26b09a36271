"""Exceptions pass through a lock as they would without it (R7); ``unit/test_deadline.py`` has each case."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
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
    """Take the lock away and wait until the lease knows; the caller is cancelled in the next turn."""
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
    with pytest.raises(kind) as caught:
        async with manager.lock("own"):
            raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert error.__cause__ is error.__context__ is None


async def test_loss_ends_in_lock_lost_error(manager: LockManager, shared_nodes: Nodes) -> None:
    """Our own cancellation becomes `LockLostError`, and the task goes on as if never cancelled."""
    with pytest.raises(LockLostError) as lost:
        async with manager.lock("lost") as lease:
            await lose(shared_nodes, lease)
            await asyncio.sleep(FOREVER)
    assert (lost.value.reason, lost.value.names) == (LossReason.REFUSED, ("lost",))
    assert len(lost.value.votes) == 5
    assert isinstance(lost.value.__cause__, asyncio.CancelledError)
    assert cancels() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize("on_lost", ["cancel", "raise"])
async def test_an_error_of_a_body_that_lost_its_lock(
    manager: LockManager, shared_nodes: Nodes, on_lost: str
) -> None:
    """The body's own exception leaves also when the lock was lost; a note tells of the loss."""
    error = ValueError("the body's own")
    with pytest.raises(ValueError, match="own") as caught:
        async with manager.lock("noted", on_lost=on_lost) as lease:  # type: ignore[arg-type]
            try:
                await lose(shared_nodes, lease)
                await asyncio.sleep(FOREVER if on_lost == "cancel" else 0.0)
            except asyncio.CancelledError:
                raise error from None
            raise error
    assert caught.value is error
    assert any("'noted'" in note and "lost" in note for note in caught.value.__notes__)
    assert cancels() == 0


@pytest.mark.parametrize("where", ["outside", "inside", "at the moment of the loss"])
async def test_timeout(manager: LockManager, shared_nodes: Nodes, where: str) -> None:
    """`asyncio.timeout` ends in `TimeoutError`: around the lock, inside it, and together with its loss."""
    lock = manager.lock("timed")
    with pytest.raises(TimeoutError):
        if where == "outside":
            async with asyncio.timeout(0.05), lock:
                await asyncio.sleep(FOREVER)
        elif where == "inside":
            async with lock, asyncio.timeout(0.05):
                await asyncio.sleep(FOREVER)
        async with asyncio.timeout(None) as scope, lock as lease:
            await lose(shared_nodes, lease)
            scope.reschedule(0)
            await asyncio.sleep(FOREVER)
    assert cancels() == 0


@pytest.mark.parametrize("lost", [False, True])
async def test_cancel_from_outside(manager: LockManager, shared_nodes: Nodes, lost: bool) -> None:
    """A cancellation of the task leaves with its message; it stays one at the moment of a loss, too."""
    inside = asyncio.Event()

    async def work() -> None:
        async with manager.lock("cancelled") as lease:
            if lost:
                await lose(shared_nodes, lease)
            inside.set()
            await asyncio.sleep(FOREVER)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel("from outside")
    await asyncio.wait((task,), timeout=PATIENCE)
    assert task.cancelled()
    if not lost:
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.args == ("from outside",)


async def test_anyio_scope_around_a_lock(manager: LockManager) -> None:
    """A cancel scope of anyio works around a lock."""
    with anyio.move_on_after(0.05) as scope:
        async with manager.lock("scoped"):
            await anyio.sleep(FOREVER)
    assert scope.cancelled_caught


async def test_inner_lock_lost(manager: LockManager, shared_nodes: Nodes) -> None:
    """The loss of the inner of two locks leaves the outer one held; then the outer one's ends its block."""
    with pytest.raises(LockLostError, match="outer"):
        async with manager.lock("outer") as outer:
            with pytest.raises(LockLostError, match="inner"):
                async with manager.lock("inner") as inner:
                    await lose(shared_nodes, inner)
                    await asyncio.sleep(FOREVER)
            outer.check()
            await extended(outer, outer.extensions + 1)
            async with manager.lock("inner"):
                await lose(shared_nodes, outer)
                await asyncio.sleep(FOREVER)
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
