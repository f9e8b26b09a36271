"""The fair mutex: one holder, and the others in line, first come, first served (R28 to R30).

To the nodes it is a mutex, with the same owner value under the same key, and excludes one.  Beside it are
the seats of those that wait, with their tickets: a node grants the lock to the first in line, and to the next
ones after a head start each.  They are hints: what they say wrong costs order or time, and no exclusion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

from .. import _scripts
from .._core.command import Answer, Reply
from .._core.keyspace import SEATS, TICKETS
from .._core.seats import Seat
from . import answers
from .kind import Kind, Operation
from .mutex import MUTEX


def _read_acquire(reply: Reply) -> Answer:
    if type(reply) is not list:
        return answers.silent(reply)
    answer: list[Any] = reply
    *grant, ticket, ahead = answer
    return answers.read_grant(grant)._replace(ticket=ticket, ahead=ahead)


_ACQUIRE: Final = Operation(
    script=_scripts.FAIR_ACQUIRE, fits=answers.fits_grant_and_place, read=_read_acquire
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fair(Kind):
    """A mutex whose waiters stand in line: one task of each process, in the process's seat (R30)."""

    def channels(self, keys: tuple[bytes, ...], beside: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the tickets: of what a notice to a seat says that it is free."""
        return beside[:1]

    def channel_of(self, seat: Seat) -> bytes:
        """Return the seat's own."""
        return seat.name

    def acquire_words(self, seat: Seat, named: int | None, chance: Callable[[], float]) -> tuple[bytes, ...]:
        """Say which place in line the call has, and for how long that is kept."""
        return self.release_words(seat)

    def release_words(self, seat: Seat) -> tuple[bytes, ...]:
        """Say which place in line is kept, or left: without a ticket."""
        return (seat.name, b"%d" % seat.ticket, b"%d" % seat.life)

    def seat_of_try(self, seat: Seat) -> Seat:
        """Keep the place in line."""
        return seat


FAIR: Final = _Fair(
    name="fair",
    noun="fair mutex",
    letter=b"f",
    passes_on=False,
    windows=False,
    seat=lambda of_process, _: of_process(),
    acquire=_ACQUIRE,
    acquire_plain=_ACQUIRE,
    acquire_one_plain=_ACQUIRE,
    raise_=replace(MUTEX.raise_, marks=False),
    extend=replace(MUTEX.extend, marks=False),
    repair=replace(MUTEX.repair, marks=False),
    release=Operation(script=_scripts.FAIR_RELEASE, fits=answers.fits_release, read=answers.read_release),
    beside=(TICKETS, SEATS),
    read_key=MUTEX.read_key,
)
