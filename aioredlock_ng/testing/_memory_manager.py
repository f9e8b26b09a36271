"""The manager behind the fixture ``lock_manager``: it fits whatever loop it is first used in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, final

from .._clock import SystemClock
from .._manager import LockManager
from .memory_node import MemoryNode
from .sim_loop import SimClock, SimLoop

NODES: Final = 3

CLOSE_TIMEOUT: Final = 10.0
"""Seconds that a loop in another thread is given to close the manager."""


@final
class _LoopsClock:
    """The clock of the loop that first asks for the time: virtual on a `SimLoop`, else the system's."""

    __slots__ = ("_clock",)

    def __init__(self) -> None:
        self._clock: SimClock | SystemClock | None = None

    def now(self) -> float:
        return self._of_the_loop().now()

    @property
    def wall(self) -> Callable[[], float]:
        return self._of_the_loop().wall

    def _of_the_loop(self) -> SimClock | SystemClock:
        if self._clock is None:
            loop = asyncio.get_running_loop()
            self._clock = loop.clock if isinstance(loop, SimLoop) else SystemClock()
        return self._clock


@contextlib.contextmanager
def memory_manager() -> Iterator[LockManager]:
    """Give a manager over masters in memory to code that is not async, and close it afterwards."""
    manager = LockManager([MemoryNode() for _ in range(NODES)], clock=_LoopsClock())
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
