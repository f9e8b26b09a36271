"""The body of a lease: the task that runs under it, cancelled when the lease is lost (rule R7)."""

from __future__ import annotations

import asyncio
from contextvars import Context


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
