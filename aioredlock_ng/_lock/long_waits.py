"""The log of calls of `acquire` that wait.

A call that has waited for a while is logged with the reason, and again when the reason changes.  A call that
may wait for ever causes a warning: for a lock that its own task holds, or the task that started it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final
from weakref import ref

from .._log import Once, report
from ..errors import LockNotAcquiredError, LockTakenError, printable
from .holding import Holding

if TYPE_CHECKING:
    from .acquisition import Acquisition
    from .session import Session

LONG: Final = 2.0
"""Seconds that a call waits before the log says why."""

MAX_LINES: Final = 20
"""Most lines about waiting calls that one manager logs within `LINES_WITHIN` seconds."""

LINES_WITHIN: Final = 60.0

Locks: TypeAlias = "tuple[ref[Holding], ...]"

REMEMBERED: Final = 4
"""Number of locks that a context remembers: the latest ones."""

ACQUIRED: Final[ContextVar[Locks]] = ContextVar("aioredlock_ng_acquired", default=())
"""The locks that were acquired in this context, by its own code or by a task that started it.

They give no right to anything, and serve a warning only; some of them may be over."""


@final
class _Logged(NamedTuple):
    """A waiting call that is in the log."""

    call: Acquisition
    reason: type[LockNotAcquiredError | None]
    """Whether another client had the lock, or no majority answered."""
    since: float
    """When it began to wait."""
    at: float
    """When it was last logged."""


@final
class LongWaits:
    """Logs the calls of one manager that wait for long; of several that wait for the same lock, the first.

    Call `begin` when a call begins to wait, `reconsider` when it was refused again, and `drop` when it has
    ended.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop = session.loop
        self._logged: dict[tuple[str, ...], _Logged] = {}
        self._warned = Once()
        self._lines = 0
        self._window = -math.inf

    def begin(self, call: Acquisition) -> asyncio.TimerHandle:
        """Have a call logged once it has waited for long; the caller cancels the timer when it has ended."""
        return self._loop.call_later(LONG, self._waits_long, call, self._loop.time(), context=Context())

    def _waits_long(self, call: Acquisition, since: float) -> None:
        self._warn_of_own_lock(call)
        # One line for a lock, however many calls wait for it.
        if call.names not in self._logged:
            self._log(call, since)

    def reconsider(self, call: Acquisition) -> None:
        """Log a call again if it now waits for nodes instead of a holder, or the other way round."""
        logged = self._logged.get(call.names)
        # Not in the log, or another call for the same lock is; or logged a moment ago.
        if logged is None or logged.call is not call or self._loop.time() < logged.at + LONG:
            return
        if type(call.why()) is not logged.reason:
            self._log(call, logged.since)

    def drop(self, call: Acquisition) -> None:
        """Forget a call that has ended."""
        # Another call for the same lock may be logged next.
        if (logged := self._logged.get(call.names)) is not None and logged.call is call:
            del self._logged[call.names]

    def _log(self, call: Acquisition, since: float) -> None:
        session, error, now = self._session, call.why(), self._loop.time()
        # Counts as logged even if the line is suppressed below.
        self._logged[call.names] = _Logged(call, type(error), since, now)
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
                len(session.sleeps) + len(session.attempt_limiter),
                LINES_WITHIN,
            )
            return
        level, why = self._reason(error)
        message = "still waiting for lock %s after %.1f s: %s"  # `run` shows lines that begin so
        report(level, message, printable(call.names), now - since, why, lock=call.names, kind=call.kind.name)

    def _warn_of_own_lock(self, call: Acquisition) -> None:
        """Warn, once for each lock, if a call may wait for one that its own task or an ancestor acquired."""
        names, leases = call.names, self._session.watchdog.leases
        # A semaphore of several permits: another holder may release one.
        if not call.kind.full(1):
            return
        for each in call.acquired:
            # Released, collected or of other names.
            holding = each()
            if holding not in leases or set(names).isdisjoint(holding.names):
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
                    kind=call.kind.name,
                )
            return

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
        wait = self._session.availability.seconds()
        until = f"; a majority may vote in {wait:.1f} s" if 0 < wait < math.inf else ""
        return logging.WARNING, f"{error}{until}"
