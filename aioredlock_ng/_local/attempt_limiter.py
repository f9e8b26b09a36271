"""Admission: how many attempts of one manager may be in flight at once (rule R13).

Commands on a connection cannot overtake each other.  If thousands of attempts left in one turn of the event
loop, the extensions of held leases would queue behind them, and answers would come too late.  So an attempt
takes a place first; if all places are taken, it is queued for one, first in, first out.  It keeps the place
from the question to the verdict, which comes within a `node_timeout`, and never while its task waits for
anything else: so no deadlock is possible here.  Extensions and releases need no place.

A non-blocking call (``blocking_timeout=0``, `single_try`) has no time to wait behind calls that have some.
Such calls have a queue of their own, and the two queues are served in turn.  While the nodes answer, a
non-blocking call waits one round trip for every half of all places before it.  When they do not, the
non-blocking calls that have waited for a `node_timeout` are refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, TypeAlias, final

from .._clock import Clock
from .._core.quorum import Tally
from .._round.futures import give_up

MAX_TRIES: Final = 128
"""Most attempts of one manager in flight at once.  Twice as many are no faster: an event loop takes some
30 ms to send them and read the answers, and commands behind them wait as long."""

MAX_TRIES_BY_CLIENTS: Final = 16
"""The same where a node is a user's own client.  Each of its calls takes an event loop many times as long:
with more attempts at once all answers would come too late, and every attempt would be repeated, for ever."""

MAX_QUIET: Final = 128
"""Most attempts beyond that, by tasks whose process has just had the name.  They leave in the same write as
the release before them; without a place, that release would have to notify other processes."""

MAX_IN_LINE: Final = 65536
"""Most calls of one manager in each of the two queues, of non-blocking calls and of the others."""

Place: TypeAlias = "asyncio.Future[bool]"
"""An entry in one of the queues: True when it gets a place, False when it is refused."""


@final
class AttemptLimiter:
    """The places of one manager, and the queues for them."""

    __slots__ = ("_clock", "_line", "_node_timeout", "_single", "_singles", "in_flight", "most")

    def __init__(self, clock: Clock, node_timeout: float, *, by_clients: bool = False) -> None:
        self.most = MAX_TRIES_BY_CLIENTS if by_clients else MAX_TRIES
        """Number of places; behind quiet releases `MAX_QUIET` more, or as many again if that is less."""
        self._clock = clock
        self._node_timeout = node_timeout
        # The two queues, each with the time since when a call waits.
        self._line: OrderedDict[Place, float] = OrderedDict()
        self._singles: OrderedDict[Place, float] = OrderedDict()
        self._single = True  # whether the next place goes to a non-blocking call
        self.in_flight = 0
        """Number of places taken: `most` or more while calls are queued."""

    def enter(self) -> bool:
        """Take a place if one is free, else return False: then use `line_up`.  `leave` gives it back."""
        if self.in_flight >= self.most:
            return False
        self.in_flight += 1
        return True

    def reserve(self) -> bool:
        """Take a place for a task that asks behind a quiet release; False when too many are taken."""
        if self.in_flight >= self.most + min(self.most, MAX_QUIET):
            return False
        self.in_flight += 1
        return True

    def leave(self, tally: Tally | None = None) -> None:
        """Give a place back; `tally` is the outcome of the attempt, if there was one."""
        # A free place beside this one, so the queues are empty: the usual case.
        if self.in_flight < self.most:
            self.in_flight -= 1
            return
        # The attempt found too few nodes that answer: non-blocking calls must not wait for them.
        if tally is not None and tally.taken is False:
            self._send_away()
        # More than `most` are taken, by tasks behind quiet releases: this place goes.  Otherwise it goes to
        # the next call in the queues, and the number stays the same.
        if self.in_flight > self.most or not self._call_next():
            self.in_flight -= 1

    def _call_next(self) -> bool:
        """Give a place to the next call in the queues; False when both are empty."""
        # The queue whose turn it is, or the other one if that is empty.
        while line := (self._singles if self._single else self._line) or self._singles or self._line:
            place, _ = line.popitem(last=False)
            # Done: its time was up in this turn of the event loop.  Take the next one.
            if not place.done():
                self._single = line is not self._singles
                place.set_result(True)
                return True
        return False

    def line_up(self, *, single_try: bool) -> Place | None:
        """Return a new entry in a queue, or None when that is full.

        A call that stops waiting without a place calls `step_out`.
        """
        line = self._singles if single_try else self._line
        if len(line) >= MAX_IN_LINE:
            return None
        place: Place = asyncio.get_running_loop().create_future()
        line[place] = self._clock.now()
        return place

    def step_out(self, place: Place) -> None:
        """Leave the queue; a place that was given in the same moment goes to the next call."""
        # It was given a place in the turn in which its task was cancelled, say.
        if place.done() and not place.cancelled() and place.result():
            self.leave()
            return
        # Still queued, or refused: then it is in neither queue any more.
        place.cancel()
        self._line.pop(place, None)
        self._singles.pop(place, None)

    def _send_away(self) -> None:
        """Refuse the non-blocking calls that have waited for a `node_timeout`: the nodes do not answer."""
        before = self._clock.now() - self._node_timeout
        # The queue is in the order of arrival: behind the first that came later, all did.
        while self._singles and next(iter(self._singles.values())) <= before:
            give_up(self._singles.popitem(last=False)[0])
