"""Seats: how calls mark at the nodes that they wait; for a fair lock they stand in line (R22, R28 to R30)."""

from __future__ import annotations

from typing import Final, NamedTuple, final

from .command import milliseconds

HEAD_START: Final = 0.05
"""Seconds for which a free lock is kept for the first in line, and again for each that follows (R29)."""

MOST_AHEAD: Final = 1000
"""Seats ahead of one that make its reminders rarer, at most: they come every 20 s then at the latest."""

_REMINDERS: Final = 3
"""Lost reminders in a row that a seat outlives."""

_SPARE: Final = 0.5
"""Seconds that it lives beyond them."""


@final
class Seat(NamedTuple):
    """The mark of a call at the nodes while it waits."""

    name: bytes = b""
    """Empty: it does not wait."""
    ticket: int = 0
    """Its place in line, before those with greater ones; 0 while it has none, and once it waits no more."""
    life: int = 0
    """Milliseconds for which a node keeps the seat at the head of the line, unless it hears of it again."""

    def __repr__(self) -> str:
        return f"<Seat {self.ticket}>"  # the name alone would be enough to take it away


NO_SEAT: Final = Seat()

SHARED_SEAT: Final = Seat(b"1")
"""The seat of calls that have no mark of their own."""


def seat_life(longest_reminder: float) -> int:
    """Return how long a seat lives that is not seen again, in milliseconds."""
    return milliseconds(_REMINDERS * longest_reminder + _SPARE)
