"""The time that a caller gives one call of `acquire` (R13)."""

from __future__ import annotations

import asyncio
from typing import Final, final

from .._clock import Clock
from .._local.local_queue import NameQueue, QueueEntry
from .._round.futures import give_up
from ..errors import LockNotAcquiredError, LockTakenError, QuorumUnavailableError

CHECKS: Final = 10
"""How often, within its time, a call checks whether the task before it misses a quorum, at most."""


@final
class Deadline:
    """How much of it is left, in seconds; `given` is None for no end, 0 for a single try.

    While tries end without a quorum it may be shorter: `for_quorum` seconds since `answered_at`.
    """

    _quorum_missing = False
    _in_line = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, clock: Clock, node_timeout: float, given: float | None, began: float, for_quorum: float | None
    ) -> None:
        self.clock = clock
        self.node_timeout = node_timeout
        self.given = given
        self.began = began
        self.for_quorum = for_quorum
        """Seconds that a quorum may be missing; None: as long as all may take."""
        self.single_try = given == 0
        """Whether there is nothing to wait for."""
        self.answered_at = began
        """When a quorum last answered that the lock is taken; before that, when the call began."""

    @property
    def used(self) -> float:
        """The seconds that have passed."""
        return self.clock.now() - self.began

    def left(self) -> float | None:
        """Return the seconds that may still be waited; None when there is no end."""
        given, began = self.given, self.began
        if self._quorum_missing and self.for_quorum is not None:
            ends = self.answered_at + self.for_quorum
            return (ends if given is None else min(ends, began + given)) - self.clock.now()
        return None if given is None else began + given - self.clock.now()

    def room(self) -> float | None:
        """Return how long a wait may take that something else ends: what is left, not less than none."""
        left = self.left()
        return None if left is None else max(0.0, left)

    def within(self, wait: float) -> float:
        """Return how much of `wait`, in seconds, there is room for."""
        left = self.left()
        return wait if left is None else max(0.0, min(wait, left))

    def for_answers(self) -> float:
        """Return how long the nodes' answers may be waited for now.

        A `node_timeout`, but never further than one past the time that the caller gave (R13).
        """
        timeout = self.node_timeout
        if self.given is None and not self._quorum_missing:
            return timeout  # the most frequent case
        left = self.left()
        return timeout if left is None else min(timeout, max(0.0, left + timeout + self._in_line))

    # -- what happens to it --------------------------------------------------------------------

    def heard(self, error: LockNotAcquiredError) -> None:
        """Take note of what a try, or a task of this process, was told."""
        self._quorum_missing = not isinstance(error, LockTakenError)
        if not self._quorum_missing:
            self.answered_at = self.clock.now()

    def goes_on_from(self, refusal: LockNotAcquiredError | None, answered_at: float) -> None:
        """Begin to ask after a task of this process that was told `refusal` last; None: it had the lock."""
        missing = isinstance(refusal, QuorumUnavailableError)
        self.answered_at = max(self.began, answered_at) if missing else self.clock.now()

    def stood_in_line(self, seconds: float) -> None:
        """Leave out of account what a single try waited for its place: it is asked once, and heard out."""
        if self.single_try:
            self._in_line += seconds

    # -- behind a task of this process ---------------------------------------------------------

    def watch_quorum(self, entry: NameQueue, place: QueueEntry) -> None:
        """End the wait of `place` when the task before it has found no quorum for too long.

        The task that is in for the name asks the nodes for all behind it; they go by what it was told.
        """
        if self.for_quorum is not None and not self.single_try:
            self._check_quorum_in(self.for_quorum - self.used, entry, place, self.for_quorum)

    def watch_no_more(self) -> None:
        """End what `watch_quorum` began."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_quorum_in(self, seconds: float, entry: NameQueue, place: QueueEntry, limit: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._check_quorum, entry, place, limit)

    def _check_quorum(self, entry: NameQueue, place: QueueEntry, limit: float) -> None:
        left = max(entry.answered_at, self.began) + limit - self.clock.now()
        missing = entry.held is None and isinstance(entry.refusal, QuorumUnavailableError)
        if missing and left <= 0:
            place.verdict = entry.refusal
            give_up(place.future)
            return
        # A quorum answered not long ago, or the lock is held: check again when that may have changed.
        least = self.node_timeout if missing else max(self.node_timeout, limit / CHECKS)
        self._check_quorum_in(max(left, least), entry, place, limit)
