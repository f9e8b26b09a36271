"""The manager behind the fixture ``lock_manager``: it fits whatever loop it is first used in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from .._manager import LockManager
from .memory_node import MemoryNode

NODES: Final = 3

CLOSE_TIMEOUT: Final = 10.0
"""Seconds that a loop in another thread is given to close the manager."""


@contextlib.contextmanager
def memory_manager() -> Iterator[LockManager]:
    """Give a manager over masters in memory to code that is not async, and close it afterwards."""
    manager = LockManager([MemoryNode() for _ in range(NODES)])
    try:
        yield manager
    finally:
        _close(manager)


def _close(manager: LockManager) -> None:
    """Close a manager from outside its loop."""
    session = manager._life.session  # noqa: SLF001 (the loop that it was used in is no part of its interface)
    if session is None or session.loop.is_closed():
        return  # a loop that is closed in order ends all its tasks, and they close the manager
    if session.loop.is_running():  # in another thread, such as that of a web framework's test client
        asyncio.run_coroutine_threadsafe(manager.aclose(), session.loop).result(CLOSE_TIMEOUT)
    else:
        session.loop.run_until_complete(manager.aclose())
