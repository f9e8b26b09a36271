"""The fair mutex: one holder, and a queue of waiters: first come, first served (R28 to R30).

To the nodes it is a mutex, with the same owner value under the same key, and the two exclude each other.
Beside it are the seats of the waiters, with their tickets: a node grants the lock to the first waiter in the
queue, and to each following one after a head start of those before it.  Seats are hints: a wrong one costs
order or time, never exclusion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, final

from .. import _scripts
from .._core.command import Answer, Reply
from .._core.keyspace import SEATS, TICKETS
from .._core.rights import LINE_RIGHTS
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
class _Fair(Kind):
    """A mutex whose waiters form a queue: one task of each process, in the process's seat (R30)."""

    def channels(self, keys: tuple[bytes, ...], beside: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the key of the tickets: a notification to a seat names the lock by it."""
        return beside[:1]

    def channel_of(self, seat: Seat) -> bytes:
        """Return the seat's own channel."""
        return seat.name

    def acquire_words(self, seat: Seat, named: int | None, chance: Callable[[], float]) -> tuple[bytes, ...]:
        """Return the call's seat, its ticket, and how long the seat is kept."""
        return self.release_words(seat)

    def release_words(self, seat: Seat) -> tuple[bytes, ...]:
        """Return the seat that is kept, with its ticket, or the seat that is left: the ticket is 0."""
        return (seat.name, b"%d" % seat.ticket, b"%d" % seat.life)

    def granted(self, fence: int, before: int) -> list[object]:
        """Add that there is no queue."""
        return [1, fence, 0, 0, 0]

    def seat_of_try(self, seat: Seat) -> Seat:
        """Keep the position in the queue."""
        return seat


FAIR: Final = _Fair(
    name="fair",
    noun="fair mutex",
    letter=b"f",
    passes_on=False,
    windows=False,
    seat=lambda of_process, _: of_process(),
    acquire=_ACQUIRE,
    raise_=replace(MUTEX.raise_, marks=False),
    extend=replace(MUTEX.extend, marks=False),
    repair=replace(MUTEX.repair, marks=False),
    release=replace(MUTEX.release, script=_scripts.FAIR_RELEASE),
    beside=(TICKETS, SEATS),
    rights=LINE_RIGHTS,
    read_key=MUTEX.read_key,
)
