"""What the Lua files of a fair lock do, for a master in memory (R28 to R30)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from .. import _scripts
from .._core.fencing import granted, kept_ms
from ._memory_data import CommandError
from ._memory_parts import counted, foreign_and_label, owner_at, raise_all, sentinel_matches
from ._memory_process import MemoryProcess

HEAD_START_MS: Final = 50
LONG_START_MS: Final = 200
LATE_MS: Final = 10_000
LIFE_PER_SEAT_MS: Final = 60
MOST_AHEAD: Final = 1000
_MOST_DROPPED: Final = 64
_TOLD: Final = 2
_MOST_TRIED: Final = 8

_FREE: Final = b"free"
"""Among the seats: since when the lock is free, or when its holder ends."""

_LATE: Final = b"late"
"""Among the seats: until when head starts are long."""

_SHOWN_BYTES: Final = 1024


class Call(NamedTuple):
    """A call that waits, or does not: the seat is empty."""

    seat: bytes
    ticket: int
    life: int


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Those that wait for one lock, as ``parts/seats.lua`` has them."""

    server: MemoryProcess
    tickets: bytes
    seats: bytes

    @property
    def now(self) -> int:
        """The node's time in milliseconds."""
        return self.server.time_us() // 1000

    @property
    def order(self) -> list[bytes]:
        """The seats, by their tickets."""
        tickets = self.server.scores(self.tickets)
        return sorted(tickets, key=lambda seat: (tickets[seat], seat))

    @property
    def exists(self) -> bool:
        """Whether anything waits."""
        return self.server.pttl(self.tickets) > 0

    def leave(self, seat: bytes) -> bool:
        """Take a seat away, and with the last one all; False when there was none."""
        left = self.server.zrem(self.tickets, seat)
        self.server.zrem(self.seats, seat)
        if left and not self.server.exists(self.tickets):
            self.server.delete(self.seats)
        return left

    def ahead_of(self, seat: bytes) -> int:
        """How many seats are before one, or in all; those at the front that have ended go."""
        order = self.order
        for first in order[:_MOST_DROPPED]:
            if self.server.scores(self.seats).get(first, 0) >= self.now or first == seat:
                break
            self.leave(first)
        order = self.order
        return order.index(seat) if seat in order else len(order)

    def sit(self, call: Call) -> int:
        """Have a seat with a ticket, of 0 with the one that it has, or the next; return it."""
        seat, ticket, life = call
        tickets = self.server.scores(self.tickets)
        if not ticket:
            ticket = tickets.get(seat) or max(max(tickets.values(), default=0) + 1, self.now * 1024)
        self.server.zadd(self.tickets, seat, ticket)
        self._prolong(self.tickets, life)
        life += LIFE_PER_SEAT_MS * min(self.order.index(seat), MOST_AHEAD)
        self.server.zadd(self.seats, seat, self.now + life)
        for key in (self.tickets, self.seats):
            self._prolong(key, life)
        return ticket

    def _prolong(self, key: bytes, life: int) -> None:
        if self.server.pttl(key) < life:
            self.server.pexpire(key, life)

    def free_since(self, moment: int) -> None:
        """Note since when the lock is free, or when its holder ends."""
        if self.server.exists(self.seats):
            self.server.zadd(self.seats, _FREE, moment)

    def served(self, seat: bytes, ahead: int) -> None:
        """Take a seat away that was served, and those before it, which had their head start."""
        for each in [*self.order[:ahead], seat]:
            self.leave(each)
        self.server.zrem(self.seats, _FREE)

    def came_late(self) -> None:
        """Note that one has come back that was passed over: it lives, and is far away."""
        self.server.zadd(self.seats, _LATE, self.now + LATE_MS)

    @property
    def start(self) -> int:
        """How long the first in line may ask before the next may."""
        left = self.server.scores(self.seats).get(_LATE, 0) - self.now
        return LONG_START_MS if 0 < left <= LATE_MS else HEAD_START_MS

    def head_start(self, ahead: int) -> int:
        """For how long others come first, of a lock that is free; 0: they do not any more."""
        since = self.server.scores(self.seats).get(_FREE)
        if since is None or since > self.now:
            since = self.now
            self.free_since(since)
        return max(0, since + ahead * self.start - self.now)

    def tell_first(self) -> int:
        """Tell the first in line that the lock is free; return how many heard of it."""
        told = 0
        for place, seat in enumerate(self.order[:_MOST_TRIED]):
            told += min(1, self.server.publish(seat, b"1:%d@%b" % (place, self.tickets)))
            if told == _TOLD:
                break
        return told


def _taken(server: MemoryProcess, key: bytes, owner: bytes) -> tuple[int, bool]:
    """For how many ms what is under a key stays, -1: for ever; and whether it is the owner's."""
    holder = owner_at(server, key)
    if holder is None or holder == owner:
        return 0, holder == owner
    left = server.pttl(key)
    return -1 if left == -1 else max(left, 1), False


def _acquire(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    owner, ttl, ballot, _, keep_ms, seat, ticket, life, *stamp = argv
    time_us, floor = server.time_us(), 0
    if stamp:
        *keys, sentinel = keys
        if not sentinel_matches(server, sentinel, stamp):
            return [-1, 0, time_us, 0, 0]
        floor = int(stamp[1])
    key, *counters, tickets, seats = keys
    line, call = Line(server, tickets, seats), Call(seat, int(ticket), int(life))
    left, mine = _taken(server, key, owner)
    queued = not mine and line.exists
    back = not mine and call.ticket > 0 and not (queued and seat in line.order)
    wait, ahead = _wait(line, left, call) if queued else (left, 0)
    if wait:
        place = line.sit(call) if seat else 0
        if left > 0:
            line.free_since(time_us // 1000 + left)
            if back:
                line.came_late()
        return [0, wait, time_us, place, ahead]
    fence = max((counted(server, counter, floor) for counter in counters), default=0)
    if not mine:
        server.set(key, owner, int(ttl))
        for counter in counters:
            fence = granted(fence, int(ballot), time_us // 1000)
            server.set(counter, b"%d" % fence, kept_ms(fence, time_us // 1000, int(keep_ms)))
        if queued:
            line.served(seat, ahead)
    return [1, fence, time_us, 0, 0]


def _wait(line: Line, left: int, call: Call) -> tuple[int, int]:
    """Return for how long a lock is not the call's yet, and how many come before it."""
    if call.ticket and call.seat not in line.order:  # it was lost, and comes back to its place
        line.sit(call)
    ahead = line.ahead_of(call.seat)
    if left:
        return (left + ahead * line.start if left > 0 else left), ahead
    return line.head_start(ahead), ahead


def _release(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int | bytes]:
    owner, fence, keep_ms, loud, seat, ticket, life = argv
    key, *counters, tickets, seats = keys
    line, call = Line(server, tickets, seats), Call(seat, int(ticket), int(life))
    holder, failure = None, None
    try:
        holder = owner_at(server, key)
    except CommandError as error:
        failure = error
    deleted = holder == owner
    others = [] if holder is None or deleted else [holder]
    if deleted:
        server.delete(key)
        with suppress(CommandError):
            raise_all(server, counters, int(fence), 0, keep_ms)
    wait, told = _taken(server, key, owner)[0] if others else 0, 0
    with suppress(CommandError):
        if call.ticket or line.exists:
            gone = _stay_or_leave(line, call)
            ahead = line.ahead_of(seat)
            if wait > 0:
                wait += ahead * line.start
            elif not (others or failure):
                wait, told = _free(line, ahead, deleted=deleted, tells=bool(loud) and (deleted or gone))
    if deleted and loud:
        server.publish(key, b"%d" % server.listening(key))
    if failure is not None:
        raise failure
    return [int(deleted), wait, told, *foreign_and_label(others)]


def _stay_or_leave(line: Line, call: Call) -> bool:
    """Keep the seat of a call that has a ticket; say whether it had one and has left."""
    if call.ticket:
        line.sit(call)
        return False
    return call.seat != b"" and line.leave(call.seat)


def _free(line: Line, ahead: int, *, deleted: bool, tells: bool) -> tuple[int, int]:
    """Say of a lock that is free for how long others come first, and how many were told."""
    if deleted:
        line.free_since(line.now)
    wait = line.head_start(ahead)
    return wait, line.tell_first() if tells else 0


def _queue(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    line, most = Line(server, *keys), int(argv[0])
    tickets = server.scores(line.tickets)
    ends = server.scores(line.seats) if tickets else {}
    order = line.order
    live = [seat for seat in order[:most] if ends.get(seat, 0) >= line.now]
    found = [part for seat in live for part in (seat[:_SHOWN_BYTES], tickets[seat])]
    return [int(len(order) > most), found]


FAIR: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.FAIR_ACQUIRE.digest: _acquire,
    _scripts.FAIR_RELEASE.digest: _release,
    _scripts.QUEUE.digest: _queue,
}
