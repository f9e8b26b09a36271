"""What runs a block, and may therefore enter a reentrant lock again: its task, or a thread's code (R27).

The context is not used: tasks that a block starts inherit it, run beside the block, and may outlive it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_FOR_OTHERS: Final[WeakKeyDictionary[asyncio.Task[object], tuple[object, ...]]] = WeakKeyDictionary()
"""By task that acts for the blocks of others: what stands for those blocks, the innermost first."""


def current_task() -> asyncio.Task[object]:
    """Return the task of the calling coroutine."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine that a task runs"
    return task


def runner_of(task: asyncio.Task[object]) -> object:
    """Return what runs a block that `task` enters: the task itself, or what stands for a thread's block."""
    # A task of the synchronous façade acts for the thread that waits for it.
    blocks = _FOR_OTHERS.get(task)
    return blocks[0] if blocks else task


def current_runners() -> tuple[object, ...]:
    """Return what runs the blocks around the calling code; empty outside of tasks."""
    task = asyncio.current_task()
    return () if task is None else _FOR_OTHERS.get(task, (task,))


def act_for(blocks: tuple[object, ...]) -> None:
    """Count the current task as inside of `blocks`, those of a thread or of another task."""
    _FOR_OTHERS[current_task()] = blocks


async def in_task_of_its_own(function: Callable[[T], Awaitable[object]], argument: T) -> None:
    """Run users' code so that a cancellation of the calling task is seen, whatever that code does with it.

    In the caller's own task it might not be: before Python 3.13 a `TaskGroup` that has failed leaves a
    cancellation of its own in the task's count.  The code counts as inside of the caller's blocks.
    """
    caller = current_task()

    async def run() -> None:
        act_for((caller,))
        await function(argument)

    task = asyncio.create_task(run(), name=f"{caller.get_name()}, users' code")
    try:
        await task
    except asyncio.CancelledError:
        # Users' code had failed before the cancellation reached it: its error counts.
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
    finally:
        # No effect after the end; needed where this coroutine is closed while it waits.
        task.cancel()
