"""The deadline of one call of `acquire` (R13)."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Final

from .._clock import Clock
from .._lock.local_queue import NameQueue, QueueEntry
from .._round.deadlines import give_up
from ..errors import LockNotAcquiredError, LockTakenError, QuorumUnavailableError

CHECKS: Final = 10
"""Most checks, within the limit for a missing quorum, of whether the task before this call misses one."""


class Deadline:
    """The time that the caller has `given`, in seconds: None for no limit, 0 for a single attempt.

    While attempts end without a quorum, a shorter limit may apply: `for_quorum` seconds since `answered_at`.
    Example: ``blocking_timeout=60, quorum_timeout=5``.  The call waits a minute for a holder, but gives up
    when no quorum has answered for five seconds.
    """

    clock: Clock
    node_timeout: float
    given: float | None
    began: float
    for_quorum: float | None
    """Seconds that a quorum may be missing; None for no limit of its own."""
    single_try: bool
    """Whether the call is non-blocking: it makes one attempt."""
    answered_at: float
    """When a quorum last answered that the lock is taken; before that, when the call began."""
    _quorum_missing = False
    _in_line = 0.0
    _timer: asyncio.TimerHandle | None = None

    @property
    def used(self) -> float:
        """The seconds since the call began."""
        return self.clock.now() - self.began

    def left(self) -> float | None:
        """Return the seconds left, negative when they have passed; None without a limit."""
        given, began = self.given, self.began
        # The last attempt ended without a quorum: the earlier of the two limits applies.
        if self._quorum_missing and self.for_quorum is not None:
            ends = self.answered_at + self.for_quorum
            return (ends if given is None else min(ends, began + given)) - self.clock.now()
        return None if given is None else began + given - self.clock.now()

    def room(self) -> float | None:
        """Return the longest time for a wait: the seconds left, at least 0; None without a limit."""
        left = self.left()
        return None if left is None else max(0.0, left)

    def within(self, wait: float) -> float:
        """Return `wait`, in seconds, cut to the time left."""
        left = self.left()
        return wait if left is None else max(0.0, min(wait, left))

    def for_answers(self) -> float:
        """Return how long to wait for the nodes' answers now.

        A `node_timeout`, but no longer than until a `node_timeout` after the caller's time (R13).
        """
        timeout = self.node_timeout
        # Waits without a limit, and the nodes answer: the most frequent case.
        if self.given is None and not self._quorum_missing:
            return timeout
        # Example: `node_timeout` is 0.5 s.  With 0.3 s left it is 0.5 s; 0.2 s after the end it is 0.3 s.
        left = self.left()
        return timeout if left is None else min(timeout, max(0.0, left + timeout + self._in_line))

    # -- what happens during the call ----------------------------------------------------------

    def heard(self, error: LockNotAcquiredError) -> None:
        """Take note of the error that ended an attempt."""
        self._quorum_missing = not isinstance(error, LockTakenError)
        # Taken: a quorum has answered, and the limit for a missing one starts again.
        if not self._quorum_missing:
            self.answered_at = self.clock.now()

    def goes_on_from(self, refusal: LockNotAcquiredError | None, answered_at: float) -> None:
        """Go on after the wait for another task, whose last `refusal` counts; None: it had the lock."""
        missing = isinstance(refusal, QuorumUnavailableError)
        # That task has found no quorum since `answered_at`: this call does not start from zero.
        self.answered_at = max(self.began, answered_at) if missing else self.clock.now()

    def stood_in_line(self, seconds: float) -> None:
        """Leave out the time that a non-blocking call waited for its place: its attempt gets full time."""
        if self.single_try:
            self._in_line += seconds

    # -- behind a task of this process ---------------------------------------------------------

    def watch_quorum(self, entry: NameQueue, place: QueueEntry) -> None:
        """End the wait of `place` when the contender inside has found no quorum for too long.

        The contender inside asks the nodes on behalf of all tasks behind it, so its answers count for them.
        """
        if self.for_quorum is not None and not self.single_try:
            self._check_quorum_in(self.for_quorum - self.used, entry, place)

    def watch_no_more(self) -> None:
        """Stop what `watch_quorum` has started."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_quorum_in(self, seconds: float, entry: NameQueue, place: QueueEntry) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._check_quorum, entry, place, context=Context())

    def _check_quorum(self, entry: NameQueue, place: QueueEntry) -> None:
        limit = self.for_quorum
        assert limit is not None, "a quorum is watched only where it has a limit"
        left = max(entry.answered_at, self.began) + limit - self.clock.now()
        missing = entry.held is None and isinstance(entry.refusal, QuorumUnavailableError)
        # Missing for too long: this call ends with the refusal of the contender inside.
        if missing and left <= 0:
            place.verdict = entry.refusal
            give_up(place.future)
            return
        # A quorum has answered not long ago, or the lock is held: check again when that may have changed.
        least = self.node_timeout if missing else max(self.node_timeout, limit / CHECKS)
        self._check_quorum_in(max(left, least), entry, place)
