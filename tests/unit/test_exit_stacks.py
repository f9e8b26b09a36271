"""To the standard library each context manager of the public interface is what its ``async with`` says."""

from __future__ import annotations

import contextlib
import inspect
import io
import unittest
from typing import Any

import aioredlock_ng
from aioredlock_ng import Campaign, Leadership, Lease, Lock, LockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world


def test_exits_are_async_functions() -> None:
    """Frameworks that call them by themselves look whether there is something to await."""
    public = [getattr(aioredlock_ng, name) for name in aioredlock_ng.__all__]
    entered = {kind for kind in public if inspect.iscoroutinefunction(getattr(kind, "__aenter__", None))}
    assert entered == {Campaign, Leadership, Lease, Lock, LockManager}
    assert all(inspect.iscoroutinefunction(kind.__aexit__) for kind in entered)


async def test_an_exit_stack_releases_in_reverse_order() -> None:
    """Whatever was entered: locks of all kinds, a leadership, a lease from `acquire`."""
    async with world() as w:
        manager = w.manager
        async with contextlib.AsyncExitStack() as stack:
            blocks: list[Any] = [
                manager.lock("a"),
                manager.rwlock("b").read(),
                manager.semaphore("c", permits=2),
                manager.election("d").campaign(),
                await manager.lock("e").acquire(),
            ]
            held = [await stack.enter_async_context(block) for block in blocks]
            assert all(each.held for each in held)
        assert not any(each.held for each in held)
        assert manager.statistics().held == 0


def test_unittest_releases() -> None:
    """`enterAsyncContext` leaves each block in another task, once the test has ended."""
    held: list[Any] = []

    class Case(unittest.IsolatedAsyncioTestCase):
        async def test(self) -> None:
            """Hold a lock until the test's end."""
            manager = await self.enterAsyncContext(LockManager([MemoryNode()]))
            held.append(await self.enterAsyncContext(manager.lock("a")))
            held.append(await self.enterAsyncContext(manager.rwlock("b").write()))
            assert [lease.held for lease in held] == [True, True]

    result = unittest.TextTestRunner(stream=io.StringIO()).run(Case("test"))
    assert (result.errors, result.failures) == ([], [])
    assert [(lease.held, lease._holding.released) for lease in held] == [(False, True)] * 2
