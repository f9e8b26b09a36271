"""For how long a waiting call keeps others from locks that it does not hold itself (R22).

A waiting writer keeps new readers from a name that readers hold.  A call for several names keeps others from
those that are free.  Both do so by their entries in the local queue and by their marks at the nodes.  The
holder that the call waits for may itself wait for one of the calls that are kept out: then both would wait
for ever, though neither needs what the other holds.  So a call keeps others out for a limited time, and then
lets them in.  Each time it keeps them out for twice as long, up to a minute, so that it gets the lock even
where the others hold theirs for longer.

Example: a reader R holds "x", and will release it after its subtask has read "x", too.  A writer W waits for
R, and the subtask waits behind W.  After `KEEPS_OUT` seconds W lets the subtask in, and all three go on.
"""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import Final, final

from .local_queue import QueueEntry

KEEPS_OUT: Final = 5.0
"""Seconds that a call keeps others out the first time."""

KEEPS_OUT_LONGEST: Final = 60.0
"""Most seconds that it keeps others out, however often it has let them in."""

LETS_IN: Final = 0.25
"""Seconds that it then waits before it asks: the round trip of the calls that are let in may be long."""


@final
class Patience:
    """The time that one call keeps others out, while it is refused by the nodes."""

    __slots__ = ("_until", "span")

    def __init__(self) -> None:
        self.span = KEEPS_OUT
        """Seconds that the call keeps others out without a pause."""
        # The end of the current span; infinite while none has begun.
        self._until = math.inf

    def is_over(self, now: float, *, taken: bool) -> bool:
        """Whether the call, after a refusal by the nodes, lets others in now; a new span begins then.

        A new span begins also when the lock is not `taken`: no majority answers, and there is no holder to
        wait for.
        """
        # No quorum: the call waits for nodes, and keeps others from nothing that they could get.
        if not taken:
            self._until = math.inf
            return False
        # The first refusal by a holder: the span begins.
        if self._until == math.inf:
            self._until = now + self.span
        # Still within it.
        if now < self._until:
            return False
        # Over: let others in, and be more patient next time.
        self.grow()
        self._until = math.inf
        return True

    def grow(self) -> None:
        """Keep others out for longer the next time."""
        self.span = min(2 * self.span, KEEPS_OUT_LONGEST)


@final
class PatienceInLine:
    """The same for a call that is in the queue of `name` by its `place`; runs until it is cancelled."""

    __slots__ = ("_name", "_patience", "_place", "_timer")

    def __init__(self, patience: Patience, name: str, place: QueueEntry) -> None:
        self._patience = patience
        self._name = name
        self._place = place
        self._begin()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._patience.span, self._let_pass, context=Context()
        )

    def cancel(self) -> None:
        """Stop letting others pass: the call has been let in, or has stopped waiting."""
        self._timer.cancel()

    def _let_pass(self) -> None:
        # It was let in, or its time was up, in this turn of the event loop.
        if self._place.future.done():
            return
        contender = self._place.contender
        # Give up the names before this one.  Example: a call for a, b and c is inside of a, and queued for
        # b: others may have a meanwhile.  It enters a again when it has been let into b.
        has_kept = bool(contender.names)
        contender.leave()
        # It has kept a name, or another call in this queue, from what they could have had.  Otherwise it was
        # in no call's way, and there is no reason to be more patient.
        if contender.queue.let_pass(self._name) or has_kept:
            self._patience.grow()
        self._begin()
