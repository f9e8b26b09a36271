"""Deadlines: a heap of what has one, and the time limits of rounds, one timer of the loop for all of them.

Nearly every round is over long before its time, and most have the same limit.  A timer for each would cost
more than what it is there for.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from typing import Final, Generic, Protocol, TypeVar, final

SPARE_ENTRIES: Final = 64
"""Entries of what has ended that a heap may hold beyond twice the living ones."""


class Ends(Protocol):
    """What may end before its deadline."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""


class Limited(Ends, Protocol):
    """What has a limited time."""

    def time_out(self) -> None:
        """End it: its time is up."""


Item = TypeVar("Item", bound=Ends)


@final
class DeadlineHeap(Generic[Item]):
    """Items by the moment at which each is due; the entry of one that is over is dropped when it comes up.

    An item has one entry that counts, the last that was pushed.
    """

    __slots__ = ("_entries", "_numbers", "_order")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._numbers: dict[Item, int] = {}  # of the entry that counts
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._numbers)

    def push(self, item: Item, due: float) -> None:
        """Have `item` come up at `due`, and no more at a moment that was asked for before."""
        number = self._numbers[item] = next(self._order)
        heapq.heappush(self._entries, (due, number, item))
        if len(self._entries) > 2 * len(self._numbers) + SPARE_ENTRIES:
            self._entries = [entry for entry in self._entries if self._numbers.get(entry[2]) == entry[1]]
            heapq.heapify(self._entries)

    def drop(self, item: Item) -> None:
        """Take `item` out."""
        self._numbers.pop(item, None)

    def next_due(self) -> float:
        """Return when the first item is due that is not over; infinity when there is none."""
        entries, numbers = self._entries, self._numbers
        while entries:
            due, number, item = entries[0]
            if numbers.get(item) == number:
                if not item.done:
                    return due
                del numbers[item]
            heapq.heappop(entries)
        return math.inf

    def pop(self, now: float) -> Item | None:
        """Take out and return the first item that is due by `now`; None when there is none."""
        if self.next_due() > now:
            return None
        item = heapq.heappop(self._entries)[2]
        del self._numbers[item]
        return item


@final
class Deadlines:
    """Ends what is not over in time; times are the loop's."""

    __slots__ = ("_heap", "_loop", "_new", "_rings_at", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._new: list[tuple[float, Limited]] = []
        self._heap: DeadlineHeap[Limited] = DeadlineHeap()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf  # often too early: what it was set for is over by then

    def watch(self, limited: Limited, timeout: float) -> None:
        """End `limited` after `timeout` seconds, unless it is over by then.

        Its time begins at the end of this turn of the loop, when its commands have been written: no node is
        to blame for what keeps the loop busy until then.
        """
        if not self._new:
            self._loop.call_soon(self._begin)
        self._new.append((timeout, limited))

    def _begin(self) -> None:
        """Start the time of all that were given to `watch` in the last turn."""
        new, self._new = self._new, []
        heap, now = self._heap, self._loop.time()
        for timeout, limited in new:
            if not limited.done:
                heap.push(limited, now + timeout)
        if (due := heap.next_due()) < self._rings_at:
            self._ring_at(due)

    def _ring_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        """End what is due; go on with the first that is not over."""
        now = self._loop.time()
        self._timer, self._rings_at = None, math.inf
        try:
            while (limited := self._heap.pop(now)) is not None:
                limited.time_out()
        finally:  # whatever that raises, the others end in time, too
            if (due := self._heap.next_due()) < self._rings_at:  # a time-out may have begun something new
                self._ring_at(due)
