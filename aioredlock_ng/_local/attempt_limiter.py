"""Admission: how many tries of one manager may be in flight at once (rule R13).

What is written to a connection cannot be overtaken.  If thousands of tries left in one turn of the loop, the
extensions of leases that are held would queue up behind them, and answers would come after their time.  So a
try takes a place first, and one that finds none stands in line for it: first in, first out.  A place is kept
from the question to the verdict, which comes within a `node_timeout`, and never while a task waits for
anything else: nothing can wait for itself here.  Extensions and releases need none.

A single try (``blocking_timeout=0``) has no time to stand behind those that have.  It has a line of its
own, and the two lines are served in turn.  It waits there while nodes answer, a round trip for every half of
all places before it; once they do not, the single tries that have waited for a `node_timeout` are sent away.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, TypeAlias, final

from .._clock import Clock
from .._core.quorum import Tally
from .._round.futures import give_up

MAX_TRIES: Final = 128
"""Tries of one manager that may be in flight at once.  Twice as many are no faster: it takes a loop some
30 ms to ask and to hear them, and what comes after them waits as long."""

MAX_TRIES_BY_CLIENTS: Final = 16
"""The same where a node is a user's own client.  Each of its calls takes a loop many times as long: with more
tries at once the answers would come after their time, and all be tried again, for ever."""

MAX_QUIET: Final = 128
"""Tries beyond that, of tasks whose process has just had the name: these leave in the same write as the
release before them, which is quiet for it, or others would have to be told of it."""

MAX_IN_LINE: Final = 65536
"""Calls of one manager that may stand in line, single tries and others apart."""

Place: TypeAlias = "asyncio.Future[bool]"
"""A place in line: True when it is first, False when it is sent away."""


@final
class AttemptLimiter:
    """The places of one manager, and the lines for them."""

    __slots__ = ("_clock", "_line", "_node_timeout", "_single", "_singles", "in_flight", "most")

    def __init__(self, clock: Clock, node_timeout: float, *, by_clients: bool = False) -> None:
        self.most = MAX_TRIES_BY_CLIENTS if by_clients else MAX_TRIES
        """Places that there are; `MAX_QUIET` more behind quiet releases, but no more than as many."""
        self._clock = clock
        self._node_timeout = node_timeout
        self._line: OrderedDict[Place, float] = OrderedDict()
        self._singles: OrderedDict[Place, float] = OrderedDict()  # since when
        self._single = True  # whether a single try is next
        self.in_flight = 0
        """Places that are taken.  While calls stand in line, that is `most` or more."""

    def enter(self) -> bool:
        """Take a place if there is one; else ask for one in `line_up`.  Give it back with `leave`."""
        if self.in_flight >= self.most:
            return False
        self.in_flight += 1
        return True

    def reserve(self) -> bool:
        """Take a place for a task that asks behind a quiet release; False when there are too many."""
        if self.in_flight >= self.most + min(self.most, MAX_QUIET):
            return False
        self.in_flight += 1
        return True

    def leave(self, tally: Tally | None = None) -> None:
        """Give a place back; `tally` is what became of the try, if there was one."""
        if self.in_flight < self.most:  # so the lines are empty
            self.in_flight -= 1
            return
        if tally is not None and tally.taken is False:
            self._send_away()
        if self.in_flight > self.most or not self._call_next():
            self.in_flight -= 1

    def _call_next(self) -> bool:
        """Hand a place on to the first in line; False when both lines are empty."""
        while line := (self._singles if self._single else self._line) or self._singles or self._line:
            place, _ = line.popitem(last=False)
            if not place.done():  # else its time was up in this turn of the loop
                self._single = line is not self._singles
                place.set_result(True)
                return True
        return False

    def line_up(self, *, single_try: bool) -> Place | None:
        """Return a place in line, for which `step_out` must be called at the end of a vain wait; or None."""
        line = self._singles if single_try else self._line
        if len(line) >= MAX_IN_LINE:
            return None
        place: Place = asyncio.get_running_loop().create_future()
        line[place] = self._clock.now()
        return place

    def step_out(self, place: Place) -> None:
        """Stand in line no more; what came in the same moment goes to the next."""
        if place.done() and not place.cancelled() and place.result():
            self.leave()
            return
        place.cancel()
        self._line.pop(place, None)
        self._singles.pop(place, None)

    def _send_away(self) -> None:
        """The nodes do not answer: let those single tries go that have waited for long enough to know."""
        before = self._clock.now() - self._node_timeout
        while self._singles and next(iter(self._singles.values())) <= before:
            give_up(self._singles.popitem(last=False)[0])
