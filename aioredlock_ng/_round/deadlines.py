"""The time limits of rounds: one timer of the loop for all of them.

Nearly every round is over long before its time, and most have the same limit.  A timer for each would cost
more than what it is there for.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from typing import Protocol, final


class Limited(Protocol):
    """What has a limited time."""

    @property
    def over(self) -> bool:
        """Whether it has ended before its time."""

    def time_out(self) -> None:
        """End it: its time is up."""


@final
class Deadlines:
    """Ends what is not over in time; times are the loop's."""

    __slots__ = ("_entries", "_loop", "_new", "_order", "_rings_at", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._new: list[tuple[float, Limited]] = []
        self._entries: list[tuple[float, int, Limited]] = []  # a heap
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf  # often too early: what it was set for is over by then

    def watch(self, limited: Limited, timeout: float) -> None:
        """End `limited` after `timeout` seconds, unless it is over by then.

        Its time begins at the end of this turn of the loop, when its commands have been written: who keeps
        the loop busy until then has not been kept waiting by a node.
        """
        if not self._new:
            self._loop.call_soon(self._begin)
        self._new.append((timeout, limited))

    def _begin(self) -> None:
        """Start the time of all that were given to `watch` in the last turn."""
        new, self._new = self._new, []
        entries, now = self._entries, self._loop.time()
        for timeout, limited in new:
            if not limited.over:
                heapq.heappush(entries, (now + timeout, next(self._order), limited))
        while entries and entries[0][2].over:
            heapq.heappop(entries)
        if entries and entries[0][0] < self._rings_at:
            self._ring_at(entries[0][0])

    def _ring_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        """End what is due; go on with the first that is not over."""
        entries, now = self._entries, self._loop.time()
        self._timer, self._rings_at = None, math.inf
        try:
            while entries and (entries[0][2].over or entries[0][0] <= now):
                limited = heapq.heappop(entries)[2]
                if not limited.over:
                    limited.time_out()
        finally:  # whatever that raises, the others end in time, too
            if entries and entries[0][0] < self._rings_at:  # what was ended may have begun something new
                self._ring_at(entries[0][0])
