"""Managers that are made again and again, and never closed, are reported."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cancelled, cycle

MANY = 10
"""How many managers over the same nodes are told of."""


def nodes(world: str) -> list[MemoryNode]:
    """Return nodes of names that no other test uses."""
    return [MemoryNode(f"{world}-{i}") for i in range(3)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of too many managers."""
    return [words for words in caplog.messages if "use the same nodes" in words]


async def test_many_managers_over_the_same_nodes(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, with the count, the nodes and the way out, however many there are."""
    managers = []
    for count in range(1, MANY + 5):
        managers.append(LockManager(nodes("same")))
        await managers[-1].start()
        assert len(told(caplog)) == (count >= MANY)
    for manager in managers:
        await manager.aclose()
    (words,) = told(caplog)
    assert words.startswith(
        f"{MANY} lock managers of this process use the same nodes (same-0, same-1, same-2)"
    )
    assert "make one" in words


def test_managers_of_threads_count(caplog: pytest.LogCaptureFixture) -> None:
    """Each has a loop of its own; they are counted together."""
    managers = [SyncLockManager(nodes("threads")) for _ in range(MANY)]
    for manager in managers:
        with manager.lock("a"):
            pass
    for manager in managers:
        manager.close()
    assert len(told(caplog)) == 1


FORKED_WHILE_COUNTING: Final = """
import asyncio, os, signal, sys
from aioredlock_ng import LockManager
from aioredlock_ng._session.lifecycle import _crowds
from aioredlock_ng.testing import MemoryNode

_crowds._lock.acquire()  # as a thread that starts a manager has it for a moment
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(30)

async def use():
    async with LockManager([MemoryNode()]) as manager, manager.lock("a"):
        print("used in the child")

asyncio.run(use())
"""


def test_a_child_that_is_forked_while_a_thread_counts() -> None:
    """It starts a manager: it does not wait for a lock of its parent's thread."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED_WHILE_COUNTING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "used in the child\n"), done.stderr


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
