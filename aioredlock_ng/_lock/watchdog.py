"""The leases of a manager; one task extends each in time, and ends those that are lost (R2, R7, R8)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

from .._clock import Clock
from .._log import CONTAINED, report
from .._round.deadlines import DeadlineHeap, ring, wait_for

if TYPE_CHECKING:
    from .holding import Holding

TICK: Final = 0.25
"""Seconds: while leases are held the watchdog wakes at least this often, since the loop's timers
stand still while the machine is suspended."""

STALL: Final = 0.25
"""Seconds by which the watchdog must be late for the loop to count as stalled."""

SHORTEST_TICK: Final = 0.001
"""Seconds: it never wakes more often; leases that are due within are checked together."""

MAX_LOOKS: Final = 256
"""Leases that it checks in one turn of the event loop: to extend them all takes some 20 ms."""


@final
class Watchdog:
    """Knows the leases of a manager that are not released, and checks each when it is due.

    `on_stall` is called with ``(seconds, suspended)`` when the loop, or the machine, stood still.
    """

    name: Final = "watchdog"

    def __init__(self, clock: Clock, on_stall: Callable[[float, float], None]) -> None:
        self._clock = clock
        self._on_stall = on_stall
        self._heap: DeadlineHeap[Holding] = DeadlineHeap()
        self.leases: dict[Holding, None] = {}
        """In the order of their wins; a lost one stays until it is released."""
        self.lost: WeakSet[Holding] = WeakSet()
        """The lost ones, including those that were released since."""
        self.fresh: dict[Holding, None] = {}
        """Leases that were won since it last woke: most are released before they have to be checked."""
        self._alarm: asyncio.Future[bool] | None = None
        self.wakes_at = float("inf")
        """When it wakes next; a lease that is due earlier must `wake` it."""
        self._lately = False  # whether there was a lease since the last sleep began
        self._failed_at = -math.inf

    @property
    def held(self) -> int:
        """Number of leases that are held, as far as is known and by the clock; callable from any thread."""
        return sum(holding.held for holding in tuple(self.leases))

    def watch(self, holding: Holding) -> None:
        """Check `holding` when it is next due; call this again whenever that has changed."""
        self._lately = True
        self.fresh.pop(holding, None)
        due = holding.due
        self._heap.push(holding, due)
        if due < self.wakes_at:
            self.wake()

    def wake(self) -> None:
        """Check leases as soon as this turn of the event loop is over."""
        if self._alarm is not None and not self._alarm.done():
            ring(self._alarm)
            self.wakes_at = self._clock.now()

    def forget(self, holding: Holding) -> None:
        """Stop checking `holding`."""
        # Released before the watchdog woke, as most leases are: it was never in the heap.
        if holding in self.fresh:
            del self.fresh[holding]
            self._lately = True
        else:
            self._heap.drop(holding)

    def fail(self, _reason: str) -> None:
        """Note that `run` has failed: it is called again at once, unless it fails again within a tick (R44).

        Leases would then be without a deadline for a while: they are lost now.
        """
        now = self._clock.now()
        for holding in (*self._heap, *self.fresh) if now - self._failed_at < TICK else ():
            holding.expire()
        self._failed_at = now

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._sleep()
            self._look(self._clock.now())

    async def _sleep(self) -> None:
        """Sleep until a lease is due, at most a tick; after a tick without any lease, until there is one.

        So where leases come and go, none of them has to ring the alarm.  There are three cases.  A lease is
        in the heap: sleep until the next one is due, at most a tick.  None is, but one came since the last
        sleep: one more tick.  None at all: until one rings.
        """
        loop = asyncio.get_running_loop()
        alarm = self._alarm = loop.create_future()
        began = self._clock.now()
        ahead = began - loop.time()  # grows by what the machine is suspended
        # These have outlived a sleep: from now on the heap knows when they are due.
        while self.fresh:
            holding, _ = self.fresh.popitem()
            self._heap.push(holding, holding.due)
            holding.thin_out()
        held = bool(self._heap)
        lately, self._lately = self._lately, False
        # No lease now, and none since the last sleep began: sleep until one rings the alarm.
        delay = None
        if held or lately:
            delay = min(max(self._heap.next_due() - began, SHORTEST_TICK), TICK)
        self.wakes_at = float("inf") if delay is None else began + delay
        await wait_for(alarm, delay)
        # A late wake-up matters only to leases.  What the loop's own clock has missed was a suspend (R2).
        now = self._clock.now()
        late = now - self.wakes_at
        if late > STALL and (held or self._lately or self.fresh):
            self._on_stall(late, min(late, max(0.0, now - loop.time() - ahead)))

    def _look(self, now: float) -> None:
        """Check the leases that are due; beyond `MAX_LOOKS` the others follow after the shortest sleep.

        Deadlines come first: a lost lease is not extended.
        """
        for _ in range(MAX_LOOKS):
            holding = self._heap.pop(now)
            if holding is None:
                return
            try:
                holding.check_due(now)
            except CONTAINED as error:
                # A lease that cannot be extended, nor ended, is none (R44).
                report(logging.CRITICAL, "a lease is lost, since it cannot be watched", exc_info=error)
                holding.expire()
            if not holding.done:
                self.watch(holding)
                assert holding.due > now, "a check settles what is due"
