"""What a block runs in, and what may therefore go into it again: its task, or a thread's code in it (R27).

Never the context: tasks that a block starts inherit it, run beside the block, and may outlive it.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

_FOR_OTHERS: Final[WeakKeyDictionary[asyncio.Task[object], tuple[object, ...]]] = WeakKeyDictionary()
"""What stands for the blocks for which a task acts, the innermost first."""


def current_task() -> asyncio.Task[object]:
    """Return the task of the calling coroutine."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine that a task runs"
    return task


def runner_of(task: asyncio.Task[object]) -> object:
    """Return what runs a block that `task` enters: the task, or what stands for a thread's block."""
    blocks = _FOR_OTHERS.get(task)
    return blocks[0] if blocks else task


def current_runners() -> tuple[object, ...]:
    """Return what runs blocks that the calling code is inside of; nothing outside of tasks."""
    task = asyncio.current_task()
    return () if task is None else _FOR_OTHERS.get(task, (task,))


def act_for(blocks: tuple[object, ...]) -> None:
    """Have the current task count as inside of `blocks`, those of a thread, or of another task."""
    _FOR_OTHERS[current_task()] = blocks
