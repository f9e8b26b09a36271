"""Managers that are dropped without being closed are reported."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cancelled, cycle


def nodes(world: str) -> list[MemoryNode]:
    """Return nodes of names that no other test uses."""
    return [MemoryNode(f"{world}-{i}") for i in range(3)]


async def test_a_manager_that_is_dropped() -> None:
    """It warns while its loop runs: nothing can close it any more."""
    manager = LockManager(nodes("dropped"))
    await cycle(manager.lock("a"))
    tasks = asyncio.all_tasks()
    with pytest.warns(ResourceWarning, match=r"<LockManager running.*dropped without aclose"):  # noqa: PT031
        del manager
        gc.collect()
    (supervisor,) = (task for task in tasks if task.get_name() == "aioredlock_ng supervisor")
    await cancelled(supervisor)
