"""One task per manager that extends every lease in time and ends those that are lost (R2, R7, R8)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from .._clock import Clock
from .._round.futures import ring

if TYPE_CHECKING:
    from .holding import Holding

log = logging.getLogger("aioredlock_ng")

TICK: Final = 0.25
"""Seconds: while leases are held the watchdog looks at least this often, since the loop's timers
stand still while the machine is suspended."""

STALL: Final = 0.25
"""Seconds by which the watchdog must be late for the loop to count as stalled."""

COALESCE: Final = 0.001
"""Seconds: it never wakes more often; what is due within is judged together."""

MAX_LOOKS: Final = 256
"""Leases that it looks at in one turn of the loop: to extend them all takes some 20 ms."""

SPARE_ENTRIES: Final = 64
"""Entries of ended leases that the heap may hold beyond twice the living ones."""


@final
class Watchdog:
    """Knows when to look at which lease.

    `on_stall` is told ``(seconds, suspended)`` when the loop, or the machine, stood still.
    """

    def __init__(self, clock: Clock, on_stall: Callable[[float, float], None]) -> None:
        self._clock = clock
        self._on_stall = on_stall
        self._heap: list[tuple[float, int, Holding]] = []
        self._order = itertools.count()
        self._watched: dict[Holding, int] = {}  # the number of its one valid entry in the heap
        self._alarm: asyncio.Future[bool] | None = None
        self._wakes_at = float("inf")  # when the alarm goes off, or was rung
        self._lately = False  # whether there was a lease since the last sleep began

    def watch(self, holding: Holding) -> None:
        """Look at `holding` when it is next due; call again whenever that has moved."""
        due = holding.due
        self._lately = True
        number = self._watched[holding] = next(self._order)
        heapq.heappush(self._heap, (due, number, holding))
        if len(self._heap) > 2 * len(self._watched) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._watched.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
        if due < self._wakes_at and self._alarm is not None and not self._alarm.done():
            ring(self._alarm)
            self._wakes_at = self._clock.now()

    def forget(self, holding: Holding) -> None:
        """Stop looking at `holding`; its entries in the heap are dropped when they come up."""
        self._watched.pop(holding, None)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._sleep()
            self._judge(self._clock.now())

    async def _sleep(self) -> None:
        """Sleep until something is due, at most a tick; after a tick without any lease, until there is one.

        So where leases come and go, none of them has to ring the alarm.
        """
        loop = asyncio.get_running_loop()
        alarm = self._alarm = loop.create_future()
        began = self._clock.now()
        ahead = began - loop.time()  # grows by what the machine is suspended
        timer: asyncio.TimerHandle | None = None
        self._wakes_at = float("inf")
        held = bool(self._watched)
        lately, self._lately = self._lately, False
        if held or lately:
            delay = min(max(self._heap[0][0] - began, COALESCE), TICK) if self._heap else TICK
            self._wakes_at = began + delay
            timer = loop.call_later(delay, ring, alarm)
        try:
            await alarm
        finally:
            if timer is not None:
                timer.cancel()
        now = self._clock.now()
        late = now - self._wakes_at
        if late > STALL and (held or self._lately):
            self._on_stall(late, min(late, max(0.0, now - loop.time() - ahead)))

    def _judge(self, now: float) -> None:
        """Look at what is due; beyond `MAX_LOOKS` it is due again after the shortest of sleeps.

        Deadlines come first: a lost lease is not extended.
        """
        looks = 0
        while looks < MAX_LOOKS and self._heap and self._heap[0][0] <= now:
            _, number, holding = heapq.heappop(self._heap)
            if self._watched.get(holding) == number:
                looks += 1
                holding.look(now)
                if holding in self._watched:
                    self.watch(holding)
                    assert holding.due > now, "a look settles what is due"
