"""For how long a call keeps others from what it does not have itself (R22).

A writer keeps readers from a name that readers have, and a call for several names keeps others from those
that are free: in line here, and by its marks at the nodes.  What it waits for may wait for one of these: then
both would wait without end, though neither needs what the other holds.  So it keeps them out for a while on
end, and then lets them in; next time for twice as long, up to a minute, so that it gets in itself where the
others stay for longer.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final, final

from .local_queue import QueueEntry

KEEPS_OUT: Final = 5.0
"""Seconds for which a call keeps others out, the first time."""

KEEPS_OUT_LONGEST: Final = 60.0
"""The same, however often it has let others in."""

LETS_IN: Final = 0.25
"""Seconds for which it then keeps from asking: the round trip of those that are let in may be long."""


@final
class Patience:
    """That of one call."""

    __slots__ = ("_until", "span")

    def __init__(self) -> None:
        self.span = KEEPS_OUT
        """Seconds for which it keeps others out on end."""
        self._until = math.inf

    def is_over(self, now: float, *, taken: bool) -> bool:
        """Whether the call, which the nodes have refused, lets others in now; then it begins again.

        So it does when the lock is not `taken`: no majority answers, and no holder is waited for.
        """
        if not taken:
            self._until = math.inf
            return False
        if self._until == math.inf:
            self._until = now + self.span
        if now < self._until:
            return False
        self.grow()
        self._until = math.inf
        return True

    def grow(self) -> None:
        """Keep others out for longer the next time."""
        self.span = min(2 * self.span, KEEPS_OUT_LONGEST)


@final
class PatienceInLine:
    """That of a call whose `place` is in the queue of `name`, until it is cancelled."""

    __slots__ = ("_name", "_patience", "_place", "_timer")

    def __init__(self, patience: Patience, name: str, place: QueueEntry) -> None:
        self._patience = patience
        self._name = name
        self._place = place
        self._begin()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._patience.span, self._let_pass)

    def cancel(self) -> None:
        """Let no more pass: the call has been let in, or waits no more."""
        self._timer.cancel()

    def _let_pass(self) -> None:
        if self._place.future.done():  # it was let in, or its time is up, in this turn of the loop
            return
        contender = self._place.contender
        has_kept = bool(contender.names)
        contender.leave()  # the names that it came in for before
        if contender.queue.let_pass(self._name) or has_kept:  # else it has kept nothing from any call
            self._patience.grow()
        self._begin()
