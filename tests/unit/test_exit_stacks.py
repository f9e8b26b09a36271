"""To the standard library each context manager of the public interface is what its ``async with`` says."""

from __future__ import annotations

import contextlib
import io
import unittest
from typing import Any

from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world


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
