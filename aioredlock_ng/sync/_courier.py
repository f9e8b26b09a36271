"""The thread that calls hooks and log handlers, which are users' code: it may block, and the loop must not.

A log handler may wait for a lock of the very manager, and a hook for a thread that waits for the loop.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, final

from .._log import report
from ._events import LossEvent

MAX_UNTOLD: Final = 10_000
"""Log records and calls of hooks that wait while a handler or a hook blocks; further ones are dropped."""


@final
class Courier:
    """Calls what the loop hands it, one after the other; its thread starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._untold: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = LossEvent()
        self.dropped = 0
        """Records and calls of hooks that found no room."""
        self._reported = 0

    def deliver(self, function: Callable[..., object], *args: object) -> None:
        """Have `function` called in the current context, soon; called in the loop."""
        if self._untold.qsize() >= MAX_UNTOLD:
            self.dropped += 1
            return
        self._untold.put(functools.partial(contextvars.copy_context().run, function, *args))
        if self._thread is None:
            thread = threading.Thread(
                target=contextvars.Context().run, args=(self._run,), name=self._name, daemon=True
            )
            with suppress(RuntimeError):  # none can be started now, or any more: the next call tries again
                thread.start()
                self._thread = thread

    def end(self) -> None:
        """End the thread once it has called all that it was handed."""
        if self._thread is not None:
            self._untold.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long; not in the thread itself, where a hook closes the manager."""
        if self._thread not in {None, threading.current_thread()}:
            self._over.wait(seconds)

    def _run(self) -> None:
        try:
            while (call := self._untold.get()) is not None:
                try:
                    call()
                except BaseException as error:  # noqa: BLE001 (such as a SystemExit: there is nothing that it could end)
                    report(logging.ERROR, "a hook or a log handler failed", exc_info=error)
                del call  # and its context, before the next one is waited for
                self._report_dropped()
        finally:
            self._over.set()

    def _report_dropped(self) -> None:
        """Log how many were dropped: the first time, and whenever none waits any more."""
        dropped, before = self.dropped, self._reported
        if dropped > before and (before == 0 or self._untold.empty()):
            self._reported = dropped
            report(
                logging.WARNING,
                "%d log lines and calls of hooks of a SyncLockManager were dropped: a log handler or a hook "
                "has blocked for long",
                dropped - before,
            )
