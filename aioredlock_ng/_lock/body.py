"""The body of a lease: the task that runs under it, cancelled when the lease is lost (rule R7).

The body may enter a reentrant lock again (R27): a task, or the code of a thread.  The context is not used for
that: tasks that a block starts inherit it, run beside the block, and may outlive it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final, TypeVar
from weakref import WeakKeyDictionary


class Body:
    """Binds the current task as the body of a lease until `disarm`.

    The body is cancelled once, as `asyncio.timeout` does it: an edge, not a level.  So a shield of
    anyio does not hold it off, and code that swallows the cancellation goes on without the lock.
    """

    __slots__ = ("_armed", "_baseline", "_cancels", "_loop", "_struck", "task")

    def __init__(self, cancels: bool, loop: asyncio.AbstractEventLoop) -> None:  # noqa: FBT001
        task = asyncio.current_task(loop)
        assert task is not None, "called from a coroutine that a task runs"
        self.task = task
        self._baseline = task.cancelling()
        self._loop = loop
        self._cancels = cancels
        self._armed = True
        self._struck = False

    @property
    def is_cancelled(self) -> bool:
        """Whether other code has cancelled the block: it is about to end by itself."""
        return self.task.cancelling() > self._baseline and not self._struck

    def stop(self) -> None:
        """Cancel the body soon; never at once, since it may be the running task."""
        if self._cancels and self._armed:
            self._loop.call_soon(self._strike, context=Context())

    def _strike(self) -> None:
        if self._armed and not self._struck and not self.task.done():
            self._struck = True
            self.task.cancel("the lock was lost")

    def disarm(self, exc: BaseException | None) -> bool:
        """End the binding; return whether `exc` is our own cancellation, and no other.

        Must run before the first await of the exit: Python 3.11 and 3.12 raise a stray
        CancelledError there even after `uncancel()`, 3.13 does not.
        """
        self._armed = False
        # The body was not cancelled; or another task leaves the block, and has nothing to take back.
        if not self._struck or asyncio.current_task() is not self.task:
            return False
        # Cancellations beyond the baseline are from elsewhere, and are never swallowed.
        return self.task.uncancel() <= self._baseline and isinstance(exc, asyncio.CancelledError)


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
