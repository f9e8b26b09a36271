"""What is logged of calls of `acquire` that wait.

A call that has waited for a while is logged with the reason, and again when the reason changes.  A call that
may wait for ever causes a warning: for a lock that its own task holds, or the task that started it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Final, NamedTuple, Protocol, TypeAlias, final
from weakref import ref

from .._kinds.primitive import Primitive
from .._lock.holding import Holding, Holdings
from .._log import Once, report
from ..errors import LockNotAcquiredError, LockTakenError, printable

LONG: Final = 2.0
"""Seconds that a call waits before the log says why."""

BETWEEN_LOOKS: Final = 0.25
"""Least seconds between two checks for calls that have waited for long."""

MAX_LINES: Final = 20
"""Most lines about waiting calls that one manager logs within `LINES_WITHIN` seconds."""

LINES_WITHIN: Final = 60.0

Locks: TypeAlias = "tuple[ref[Holding], ...]"

REMEMBERED: Final = 4
"""How many locks a context remembers: the latest ones."""

ACQUIRED: Final[ContextVar[Locks]] = ContextVar("aioredlock_ng_acquired", default=())
"""The locks that were acquired in this context, by its own code or by a task that started it.

They give no right to anything, and serve `Ancestors` only; some of them may be over."""


@final
class Ancestors:
    """Warns of calls that wait for a lock of their own task, or of a task that started it."""

    __slots__ = ("_holdings", "_warned")

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._warned = Once()

    def check(self, lock: Primitive, acquired: Locks) -> None:
        """Warn, once for each lock, if a call whose context has `acquired` these may wait for ever."""
        names = lock.names
        # A semaphore of several permits: another holder may release one.
        if not lock.kind.full(1):
            return
        for each in acquired:
            # Released, collected or of other names.
            holding = each()
            if holding not in self._holdings.all or set(names).isdisjoint(holding.names):
                continue
            if self._warned.first(names):
                report(
                    logging.WARNING,
                    "a task waits for lock %s, which it or a task that started it has acquired: if the "
                    "holder waits for this task, neither can continue.  Release the lock before "
                    "acquiring it again, or pass its lease to tasks that work under it; reentrant=True "
                    "works only for the task that holds the lock",
                    printable(names),
                    lock=names,
                    kind=lock.kind.name,
                )
            return


class Waiter(Protocol):
    """A call that waits."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""

    @property
    def kind(self) -> str:
        """The name of the lock's kind."""

    def waits_long(self) -> None:
        """Take note that the call has waited for `LONG`; called once."""

    def why(self) -> LockNotAcquiredError | None:
        """Return the error that the call would raise if its time was up now; None if unknown."""


@final
class _Logged(NamedTuple):
    """A waiting call that is in the log."""

    waiter: Waiter
    reason: type[LockNotAcquiredError | None]
    """Whether another client had the lock, or no majority answered."""
    since: float
    """When it began to wait."""
    at: float
    """When it was last logged."""


@final
class LongWaits:
    """The waiting calls of one manager, in the order in which they began, with one timer for all of them.

    Of several calls that wait for the same lock, the one that has waited longest is logged.  Call `add` when
    a call begins to wait, `reconsider` when it was refused again, and `drop` when it has ended.
    """

    __slots__ = (
        "_calls",
        "_closed",
        "_lines",
        "_logged",
        "_loop",
        "_timer",
        "_unavailable_for",
        "_waiting",
        "_window",
    )

    def __init__(self, unavailable_for: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._unavailable_for = unavailable_for
        self._calls = 0  # that wait now
        # Calls that have not waited for `LONG`, and since when they wait, by the event loop's clock.
        self._waiting: dict[Waiter, float] = {}
        self._logged: dict[tuple[str, ...], _Logged] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lines = 0
        self._window = -math.inf
        self._closed = False

    def add(self, waiter: Waiter) -> None:
        """Note that a call begins to wait."""
        self._calls += 1
        self._waiting[waiter] = self._loop.time()
        # A timer that is set is for an earlier call; it then sets the next one.
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(LONG, self._check_due, context=Context())

    def reconsider(self, waiter: Waiter) -> None:
        """Log a call again if it now waits for nodes instead of a holder, or the other way round."""
        logged, now = self._logged.get(waiter.names), self._loop.time()
        # Not in the log, or another call for the same lock is; or logged a moment ago.
        if logged is None or logged.waiter is not waiter or now < logged.at + LONG or self._closed:
            return
        if type(waiter.why()) is not logged.reason:
            self._log(waiter, logged.since, now)

    def drop(self, waiter: Waiter) -> None:
        """Forget a call that has ended."""
        self._calls -= 1
        self._waiting.pop(waiter, None)
        # Another call for the same lock may be logged next.
        if (logged := self._logged.get(waiter.names)) is not None and logged.waiter is waiter:
            del self._logged[waiter.names]

    def close(self) -> None:
        """Log nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _check_due(self) -> None:
        """Log the calls that have waited for long, and set the timer for the next one."""
        self._timer, now = None, self._loop.time()
        for waiter, since in list(self._waiting.items()):
            # The calls are in the order in which they began: none behind this one is due either.
            if now < since + LONG:
                self._timer = self._loop.call_at(
                    max(since + LONG, now + BETWEEN_LOOKS), self._check_due, context=Context()
                )
                return
            del self._waiting[waiter]
            waiter.waits_long()
            # One line for a lock, however many calls wait for it.
            if waiter.names not in self._logged:
                self._log(waiter, since, now)

    def _log(self, waiter: Waiter, since: float, now: float) -> None:
        error = waiter.why()
        # Counts as logged even if the line is suppressed below.
        self._logged[waiter.names] = _Logged(waiter, type(error), since, now)
        if now >= self._window + LINES_WITHIN:
            self._window, self._lines = now, 0
        self._lines += 1
        # Too many lines in this minute.
        if self._lines > MAX_LINES:
            return
        # The last line of this minute says so.
        if self._lines == MAX_LINES:
            report(
                logging.INFO,
                "%d calls of acquire are waiting now; further long waits are not logged for up to %.0f s",
                self._calls,
                LINES_WITHIN,
            )
            return
        level, why = self._reason(error)
        message = "still waiting for lock %s after %.1f s: %s"  # `run` shows lines that begin so
        report(level, message, printable(waiter.names), now - since, why, lock=waiter.names, kind=waiter.kind)

    def _reason(self, error: LockNotAcquiredError | None) -> tuple[int, str]:
        # It waits for a place among the attempts in flight, say, and has made no attempt.
        if error is None:
            return logging.INFO, "no attempt has been sent to the nodes so far"
        # Waiting for a holder is normal: no warning.
        if isinstance(error, LockTakenError):
            left = error.retry_after
            until = "" if left is None else f"; it expires in {left:.1f} s unless it is extended"
            return logging.INFO, f"{error.args[0]}{until}"
        # No quorum: an operator may have to act.
        wait = self._unavailable_for()
        until = f"; a majority may vote in {wait:.1f} s" if 0 < wait < math.inf else ""
        return logging.WARNING, f"{error}{until}"
