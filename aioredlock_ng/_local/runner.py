"""What a block runs in, and what may therefore go into it again: its task, or a thread's code in it (R27).

Never the context: tasks that a block starts inherit it, run beside the block, and may outlive it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

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


async def in_task_of_its_own(function: Callable[[T], Awaitable[object]], argument: T) -> None:
    """Run users' code so that a cancellation of the calling task shows whatever that code makes of it.

    In one task it would not: before Python 3.13 a `TaskGroup` that has failed leaves a cancellation of its
    own in the count of the task.  The code is inside of the blocks that the caller is inside of.
    """
    caller = current_task()

    async def run() -> None:
        act_for((caller,))
        await function(argument)

    task = asyncio.create_task(run(), name=f"{caller.get_name()}, users' code")
    try:
        await task
    except asyncio.CancelledError:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error from None  # it had ended by then
        raise
    finally:
        task.cancel()  # where this coroutine is thrown away
