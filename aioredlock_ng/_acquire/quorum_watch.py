"""Ends a call in the queue of a name when the task before it has found no quorum for too long."""

from __future__ import annotations

import asyncio
from typing import Final, final

from .._local.local_queue import NameEntry, Place
from .._round.futures import give_up
from ..errors import QuorumUnavailableError
from .time_budget import TimeBudget

LOOKS: Final = 10
"""How often, within its time, a call looks whether the task before it misses a quorum, at most."""


@final
class QuorumWatch:
    """Looks for one `place` in the queue of a name, until it is cancelled.

    The task that is in for the name asks the nodes for all behind it; they go by what it was told.
    """

    __slots__ = ("_budget", "_entry", "_place", "_timer")

    def __init__(self, budget: TimeBudget, entry: NameEntry, place: Place) -> None:
        self._budget = budget
        self._entry = entry
        self._place = place
        self._look_in(budget.quorum_left(0.0))

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        entry, left = self._entry, self._budget.quorum_left(self._entry.answered_at)
        missing = entry.held is None and isinstance(entry.refusal, QuorumUnavailableError)
        if missing and left <= 0:
            self._place.verdict = entry.refusal
            give_up(self._place.future)
            return
        least = self._budget.node_timeout
        if not missing:
            least = max(least, (self._budget.for_quorum or 0.0) / LOOKS)
        self._look_in(max(left, least))
