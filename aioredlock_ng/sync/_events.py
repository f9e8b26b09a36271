"""An event for threads that may be interrupted."""

from __future__ import annotations

import _thread
import threading
from collections import deque
from contextlib import suppress
from typing import final


@final
class LossEvent(threading.Event):
    """An event that a thread can be interrupted in, without keeping the loop from setting it."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: deque[_thread.LockType] = deque()  # each locked until the event is set

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'set' if self._is_set else 'unset'}>"

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it; wakes all that wait."""
        self._is_set = True
        with suppress(IndexError):  # from an empty deque
            while True:
                self._waiters.popleft().release()

    def clear(self) -> None:
        """Refuse: a loss is for good."""
        raise RuntimeError("a loss cannot be taken back")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it is."""
        waiter = _thread.allocate_lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            if not self._is_set:
                waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:  # in time or not: a thread may ask again and again
            with suppress(ValueError):  # `set` has taken it
                self._waiters.remove(waiter)
        return self._is_set
