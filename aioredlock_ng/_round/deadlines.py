"""Time limits: waits for a future with a limit, a heap of items by deadline, and the time limits of rounds.

A future is True when its event has come, False at the limit.  One timer serves the limits of all rounds.
Nearly every round ends long before its time limit, and most have the same limit.  A timer for each round
would cost more than the round itself.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from typing import Final, Generic, Protocol, TypeVar, final

import anyio

SPARE_ENTRIES: Final = 64
"""Entries that a heap may hold in excess of two for each living item, before it drops stale ones."""


def ring(future: asyncio.Future[bool]) -> None:
    """Wake the task that waits for `future`, unless its wait has ended: the event has come."""
    if not future.done():
        future.set_result(True)


def give_up(future: asyncio.Future[bool]) -> None:
    """Wake the task that waits for `future`, unless its wait has ended: the event will not come."""
    if not future.done():
        future.set_result(False)


async def wait_for(future: asyncio.Future[bool], seconds: float | None) -> bool:
    """Wait for `future`, at most `seconds` (None: no limit); return its result, or False at the limit."""
    timer = (
        None if seconds is None else future.get_loop().call_later(seconds, give_up, future, context=Context())
    )
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


@contextmanager
def move_on_after(seconds: float | None) -> Iterator[anyio.CancelScope]:
    """As anyio's, for users' tasks: a timer that was cancelled keeps its context until it is due."""
    scope = anyio.move_on_after(seconds)
    with ExitStack() as stack:
        stack.push(scope.__exit__)
        Context().run(scope.__enter__)
        yield scope


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or raise an error that says that one is needed."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a LockManager works only with asyncio, and no asyncio event loop is running here (trio's "
            "does not count)"
        ) from None


class Ends(Protocol):
    """An item that may end before its deadline."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""


class Limited(Ends, Protocol):
    """An item with a time limit."""

    def time_out(self) -> None:
        """End the item: its time is up."""


Item = TypeVar("Item", bound=Ends)


@final
class DeadlineHeap(Generic[Item]):
    """Items by deadline; the entry of an item that has ended is dropped when it reaches the head.

    An item may have several entries, of which only the last one pushed is valid.
    """

    __slots__ = ("_entries", "_numbers", "_order")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._numbers: dict[Item, int] = {}  # of each item's valid entry
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._numbers)

    def push(self, item: Item, due: float) -> None:
        """Set the deadline of `item` to `due`, instead of an earlier one."""
        # The entry before, if there is one, becomes stale: to remove it would be a search of the heap.
        number = self._numbers[item] = next(self._order)
        heapq.heappush(self._entries, (due, number, item))
        # Mostly stale entries: rebuild, at a cost that the pushes since the last time have paid for.
        if len(self._entries) > 2 * len(self._numbers) + SPARE_ENTRIES:
            self._entries = [entry for entry in self._entries if self._numbers.get(entry[2]) == entry[1]]
            heapq.heapify(self._entries)

    def drop(self, item: Item) -> None:
        """Remove `item`."""
        self._numbers.pop(item, None)

    def next_due(self) -> float:
        """Return the deadline of the first item that has not ended; infinity if there is none."""
        entries, numbers = self._entries, self._numbers
        while entries:
            due, number, item = entries[0]
            # Valid: this is the one, unless the item has ended before its deadline.
            if numbers.get(item) == number:
                if not item.done:
                    return due
                del numbers[item]
            # Ended, dropped, or replaced by a later push.
            heapq.heappop(entries)
        return math.inf

    def pop(self, now: float) -> Item | None:
        """Remove and return the first item that is due by `now`, or return None."""
        # Also brings a valid entry to the head.
        if self.next_due() > now:
            return None
        item = heapq.heappop(self._entries)[2]
        del self._numbers[item]
        return item


@final
class Deadlines:
    """Ends items that reach their time limit; times are by the event loop's clock."""

    __slots__ = ("_entries", "_loop", "_order", "_rings_at", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._entries: list[tuple[float, int, Limited]] = []  # a heap, with some items that have ended
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        # Often too early, since the item that it was set for has ended; `_ring` then sets the next one.
        self._rings_at = math.inf

    def begin_after_turn(self, limited: Limited, timeout: float) -> None:
        """As `begin`, from the end of this turn of the event loop, when its commands have been written.

        So the time does not include what keeps the loop busy before: no node is to blame for that.
        """
        self._loop.call_soon(self.begin, limited, timeout, context=Context())

    def begin(self, limited: Limited, timeout: float) -> None:
        """End `limited` after `timeout` seconds from now, unless it has ended by then."""
        entries = self._entries
        # Forget one that has ended for each that begins: nearly every item has by the time of the next one.
        if entries and entries[0][2].done:
            heapq.heappop(entries)
        due = self._loop.time() + timeout
        heapq.heappush(entries, (due, next(self._order), limited))
        if due < self._rings_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._entries[0][0]
        self._timer = self._loop.call_at(self._rings_at, self._ring, context=Context())

    def _ring(self) -> None:
        """End all items that are due, and set the timer for the next one."""
        self._timer, self._rings_at = None, math.inf
        entries, now = self._entries, self._loop.time()
        try:
            while entries and (entries[0][0] <= now or entries[0][2].done):
                # Out of the heap first: code that hears of the silence may ask, which forgets what has ended.
                limited = heapq.heappop(entries)[2]
                try:
                    if not limited.done:
                        limited.time_out()
                finally:
                    # Not so if an error came in between: the rest of it ends when the timer rings again.
                    if not limited.done:
                        heapq.heappush(entries, (now, next(self._order), limited))
        finally:
            # Also when a time-out has raised: the other items must end in time, too.
            if entries and entries[0][0] < self._rings_at:
                self._set_timer()
