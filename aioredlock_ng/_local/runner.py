"""What a block runs in, and what may therefore go into it again: its task, or of threads the thread (R27).

Never the context: tasks that a block starts inherit it, run beside the block, and may outlive it.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

_THREADS: Final[WeakKeyDictionary[asyncio.Task[object], object]] = WeakKeyDictionary()


def runner_of(task: asyncio.Task[object]) -> object:
    """Return what code in `task` counts as: the task, unless that acts for a thread."""
    return _THREADS.get(task, task)


def current_runner() -> object | None:
    """Return what the calling code counts as; None outside of tasks."""
    task = asyncio.current_task()
    return None if task is None else runner_of(task)


def act_for(thread: object) -> None:
    """Have the current task, which does no more than one call of a thread, count as that thread."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine that a task runs"
    _THREADS[task] = thread
