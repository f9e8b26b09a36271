"""Why a call of `acquire` waits: said in the log once it has waited for a while, and when that changes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, final

from .._log import report
from ..errors import LockNotAcquiredError, LockTakenError, printable

LONG: Final = 2.0
"""Seconds that a call waits before the log says why."""

BETWEEN_LOOKS: Final = 0.25
"""Seconds: calls that have waited for long are not looked at more often."""

MAX_LINES: Final = 20
"""Lines about waiting calls that one manager logs within `LINES_WITHIN` seconds."""

LINES_WITHIN: Final = 60.0


class Waiter(Protocol):
    """A call that waits."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""

    @property
    def kind(self) -> str:
        """What the lock's kind is called."""

    def waits_long(self) -> None:
        """Take note that it has waited for `LONG`; called once."""

    def why(self) -> LockNotAcquiredError | None:
        """Return what it would be told if its time was up now; None when that is not known."""


@final
class _Told(NamedTuple):
    """A call that the log has told of."""

    waiter: Waiter
    reason: type[LockNotAcquiredError | None]
    """Whether another had the lock, or no majority could tell."""
    since: float
    """When it began to wait."""
    at: float
    """When it was told of last."""


@final
class LongWaits:
    """The calls of one manager that wait, in the order in which they began: one timer for all of them.

    Of the calls that wait for the same lock the one that has waited longest is told of.  Call `add` when one
    begins to wait, `reconsider` when it was refused again, and `drop` when it waits no more.
    """

    __slots__ = (
        "_calls",
        "_closed",
        "_lines",
        "_loop",
        "_timer",
        "_told",
        "_unavailable_for",
        "_waiting",
        "_window",
    )

    def __init__(self, unavailable_for: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._unavailable_for = unavailable_for
        self._calls = 0  # that wait now
        self._waiting: dict[Waiter, float] = {}  # not looked at yet: since when, by the loop's clock
        self._told: dict[tuple[str, ...], _Told] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lines = 0
        self._window = -math.inf
        self._closed = False

    def add(self, waiter: Waiter) -> None:
        """Note that a call begins to wait."""
        self._calls += 1
        self._waiting[waiter] = self._loop.time()
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(LONG, self._look)

    def reconsider(self, waiter: Waiter) -> None:
        """Tell again of a call that now waits for nodes, and no more for a holder, or the other way round."""
        told, now = self._told.get(waiter.names), self._loop.time()
        if told is None or told.waiter is not waiter or now < told.at + LONG or self._closed:
            return
        if type(waiter.why()) is not told.reason:
            self._tell(waiter, told.since, now)

    def drop(self, waiter: Waiter) -> None:
        """Note that a call waits no more."""
        self._calls -= 1
        self._waiting.pop(waiter, None)
        if (told := self._told.get(waiter.names)) is not None and told.waiter is waiter:
            del self._told[waiter.names]

    def close(self) -> None:
        """Say nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Tell of those that have waited for long, and come back when the next one will have."""
        self._timer, now = None, self._loop.time()
        for waiter, since in list(self._waiting.items()):
            if now < since + LONG:
                self._timer = self._loop.call_at(max(since + LONG, now + BETWEEN_LOOKS), self._look)
                return
            del self._waiting[waiter]
            waiter.waits_long()
            if waiter.names not in self._told:
                self._tell(waiter, since, now)

    def _tell(self, waiter: Waiter, since: float, now: float) -> None:
        error = waiter.why()
        self._told[waiter.names] = _Told(waiter, type(error), since, now)
        if now >= self._window + LINES_WITHIN:
            self._window, self._lines = now, 0
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        if self._lines == MAX_LINES:
            report(
                logging.INFO,
                "%d acquires wait by now; no more of them are logged for up to %.0f s",
                self._calls,
                LINES_WITHIN,
            )
            return
        level, why = self._reason(error)
        message = "still waiting for lock %s after %.1f s: %s"  # `run` shows lines that begin so
        report(level, message, printable(waiter.names), now - since, why, lock=waiter.names, kind=waiter.kind)

    def _reason(self, error: LockNotAcquiredError | None) -> tuple[int, str]:
        if error is None:
            return logging.INFO, "the nodes have not been asked yet"
        if isinstance(error, LockTakenError):
            left = error.retry_after
            until = "" if left is None else f", for {left:.1f} s unless it is extended"
            return logging.INFO, f"{error.args[0]}{until}"
        wait = self._unavailable_for()
        until = f"; a majority may vote in {wait:.1f} s" if 0 < wait < math.inf else ""
        return logging.WARNING, f"{error}{until}"
