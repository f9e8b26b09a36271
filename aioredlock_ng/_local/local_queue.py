"""The local queue: requests of one process that exclude each other reach the nodes one by one (rule R13).

Tasks of one process that want the same name queue here, first in, first out, instead of fighting each other
over the network.  Whether two of them exclude each other is for the lock kind to say.  The queue is for calm,
not for safety: a task that is let in still has to win the quorum.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, final

from .._core.cooldown import Cooldowns
from .._core.seats import NO_SEAT, Seat
from .._kinds.primitive import Primitive
from .._round.futures import give_up
from .._round.round import Round
from ..errors import LockNotAcquiredError
from .admission import Admission
from .handoff import HandoffWindows

MAX_WAITERS: Final = 65536
"""Tasks of one process that may wait for one name."""


class Held(Protocol):
    """What the queue knows of a lock that a task of this process holds."""

    @property
    def valid_until(self) -> float:
        """When its validity ends, on the manager's clock."""

    @property
    def task(self) -> object | None:
        """The task that runs under it, while an ``async with`` binds one; of a thread's block the thread."""


class Wanted(Protocol):
    """What the queue knows of a request whose task may be handed a lock by another (R43)."""

    @property
    def ttl(self) -> float:
        """Seconds for which the keys are to live."""

    @property
    def at_least(self) -> float:
        """Seconds for which the name is to stay taken (R34)."""

    @property
    def holder(self) -> str | None:
        """What the holder calls itself, where not as its manager does."""


@final
@dataclass(slots=True, eq=False)
class Ticket:
    """The right to contend for some names; `leave` lets the next in line in."""

    queue: LocalQueue
    primitive: Primitive
    names: tuple[str, ...] = ()
    """Those that it was let in for, and has not left."""
    asked: Round | None = None
    """What the contender is asking the nodes."""
    held: Held | None = None
    """What it has won, or another task has left to it (R43); nothing once it has left."""
    notice_pending: bool = False
    """Whether the release before it was quiet, because it asks at once; a place among the tries in flight is
    kept for that question.  See `handoff`."""
    seat: Seat = NO_SEAT
    """What marks its call at the nodes while it waits, if the kind has marks of its own (R22)."""
    returns: bool = False
    """Whether it was in before: its place is before those of calls that came later."""

    def now_held(self, held: Held, taken: Callable[[], LockNotAcquiredError]) -> None:
        """Tell the tasks behind this one that the names are held now."""
        self.held = held
        for name in self.names:
            entry = self.queue.entries[name]
            entry.refusal = None
            if entry.speaker is self:
                entry.speaker = None
            if entry.queue:  # what it shares with is let in
                self.queue.admit(name)
            if entry.single_tries and entry.held is not None:  # what shares the name has been let in
                entry.send_single_tries_away(taken())
            if entry.listened:
                self.queue.idle(name, entry)

    def becomes(self, weaker: Primitive) -> None:
        """Note that its lock is of a kind now that may let others in (R23)."""
        self.primitive = weaker
        for name in self.names:
            self.queue.admit(name)

    @property
    def claims(self) -> bool:
        """Whether it may keep others from what its call does not have: by marks, or from free names."""
        return self.primitive.kind.claims or len(self.primitive.names) > 1

    def enter_in_order(self) -> str | None:
        """Enter the names that it is not in for; returns the first that has to be waited for.

        It is then in for those before that one alone: since all calls keep to the order of the names, none
        of them waits for another in a circle.
        """
        names = self.primitive.names
        for place, name in enumerate(names):
            if name in self.names or self.queue.enter(name, self):
                continue
            self.leave_names(tuple(later for later in names[place + 1 :] if later in self.names))
            return name
        return None

    def speaks(self) -> bool:
        """Whether this contender, which was refused, is the one of its process that waits for the names.

        Another one that shares them may be, which was refused before.
        """
        entries = [self.queue.entries[name] for name in self.names]
        if any(entry.speaker not in (None, self) for entry in entries):
            return False
        for entry in entries:
            entry.speaker = self
        return True

    def refused(self, error: LockNotAcquiredError, answered_at: float) -> None:
        """Tell the tasks behind this one what the nodes said last, and when a quorum last answered."""
        for name in self.names:
            entry = self.queue.entries[name]
            entry.refusal, entry.answered_at = error, answered_at
            entry.send_single_tries_away(error)

    def listens(self) -> None:
        """Note that this process listens to releases of the names."""
        for name in self.names:
            self.queue.entries[name].listened = True

    @property
    def followed(self) -> bool:
        """Whether a task of this process waits for what this ticket is in for, a single name."""
        return len(self.names) == 1 and bool(self.queue.entries[self.names[0]].queue)

    def keep_quiet(self) -> bool:
        """Tell whether another task of this process asks as soon as this one leaves.

        If so, the release need not be published, and a place is kept for the question.
        """
        if self.primitive.heritable and self.followed and self.queue.entries[self.names[0]].next_asks(self):
            self.notice_pending = self.queue.admission.reserve()
        return self.notice_pending

    def heir(self) -> Place | None:
        """Return the next in line, if it wants what this one has, and may have it as it is (R43)."""
        mine = self.primitive
        if not (self.names and mine.heritable):
            return None
        place = self.queue.entries[self.names[0]].next_in_line()
        if place is None or place.ticket.primitive.kind is not mine.kind:
            return None
        return place if place.ticket.primitive.keys == mine.keys else None

    def step_back(self) -> None:
        """Leave, to queue again: another one that was refused, too, waits for both."""
        self.returns = True
        self.leave()

    def leave(self) -> None:
        """Let the next in line in, once."""
        names, self.names = self.names, ()
        self.held = None  # what is held knows this ticket, too: no work for the collector
        for name in names:
            self.queue.leave(name, self)

    def leave_names(self, names: tuple[str, ...]) -> None:
        """Let the next in line in for some of the names that it is in for."""
        self.names = tuple(name for name in self.names if name not in names)
        for name in names:
            self.queue.leave(name, self)


@final
@dataclass(slots=True, eq=False)
class Place:
    """A place in the queue; `future` is True when its ticket was let in, False when waiting is over."""

    future: asyncio.Future[bool]
    ticket: Ticket
    alone: bool
    """Whether this name is all that is wanted: then the first in line asks at once."""
    wanted: Wanted | None = None
    """What its call asks for; None of a single try, which is never handed a lock."""
    verdict: LockNotAcquiredError | None = None
    """What the contender before a single try was told: it waits for no more than that."""


@final
@dataclass(slots=True, eq=False)
class NameEntry:
    """One name: which tickets are in, and which places wait."""

    inside: list[Ticket]
    queue: OrderedDict[Place, None] | None = None
    """The places that wait, once there is one; most names are passed without."""
    refusal: LockNotAcquiredError | None = None
    """What the nodes said last to a contender."""
    answered_at: float = 0.0
    """Since when no quorum has answered, by the manager's clock, if that is the `refusal`."""
    single_tries: list[Place] | None = None
    """The places that wait for a verdict on the contender, not for their turn."""
    listened: bool = False
    """Whether this process listens to releases of the name."""
    speaker: Ticket | None = None
    """The contender that was refused and waits, for those behind it, too."""

    @property
    def held(self) -> Held | None:
        """What a task of this process holds under the name, if no other could have it beside that one."""
        found: Held | None = None
        holders = 0
        for ticket in self.inside:
            if ticket.held is not None:
                found, holders = ticket.held, holders + 1
                if ticket.primitive.kind.full(holders):
                    return found
        return None

    @property
    def asked(self) -> Round | None:
        """What a contender that is in is asking the nodes."""
        for ticket in self.inside:
            if ticket.asked is not None:
                return ticket.asked
        return None

    def admits(self, primitive: Primitive, leaving: Ticket | None = None) -> bool:
        """Whether no ticket that is in, but for the one that is `leaving`, keeps `primitive` out."""
        kind, contenders, holders = primitive.kind, 0, 0
        for ticket in self.inside:
            if ticket is leaving:
                continue
            if ticket is self.speaker or kind.conflicts(ticket.primitive.kind):
                return False
            if ticket.held is None:
                contenders += 1
            else:
                holders += 1
        return kind.admits(contenders, holders)

    def next_asks(self, leaving: Ticket) -> bool:
        """Whether the first in line asks as soon as this ticket has left."""
        place = self.next_in_line()
        return place is not None and place.alone and self.admits(place.ticket.primitive, leaving)

    def next_in_line(self) -> Place | None:
        """Return the first place whose wait is not over."""
        for place in self.queue or ():
            if not place.future.done():
                return place
        return None

    def send_single_tries_away(self, verdict: LockNotAcquiredError) -> None:
        """Send away the places that wait for no more than a verdict; each steps out of the queue itself."""
        single_tries, self.single_tries = self.single_tries, None
        for place in single_tries or ():
            place.verdict = verdict
            give_up(place.future)


@final
class LocalQueue:
    """The queues of one manager, by name; a name has an entry while a ticket is in for it."""

    __slots__ = ("_announce", "_on_idle", "admission", "cooldowns", "entries", "handoff")

    def __init__(
        self, admission: Admission, on_idle: Callable[[str], None], announce: Callable[[str], None]
    ) -> None:
        self.entries: dict[str, NameEntry] = {}
        self._on_idle = on_idle  # called when no task waits any more for a name that was listened to
        self._announce = announce  # called when a name is free, and no process has been told
        self.admission = admission
        self.handoff = HandoffWindows()
        self.cooldowns = Cooldowns()

    def listened(self, names: Iterable[str]) -> bool:
        """Whether this process listens to releases of one of these names."""
        entries = (self.entries.get(name) for name in names)
        return any(entry.listened for entry in entries if entry is not None)

    def enter(self, name: str, ticket: Ticket) -> bool:
        """Let `ticket` in for `name` if nothing that is in, or waits, excludes it; else take a `place`."""
        entry = self.entries.get(name)
        if entry is None:
            self.entries[name] = NameEntry([ticket])
        elif entry.queue or not entry.admits(ticket.primitive):
            return False
        else:
            entry.inside.append(ticket)
        ticket.names += (name,)
        return True

    def place(self, name: str, ticket: Ticket, *, single_try: bool, wanted: Wanted | None = None) -> Place:
        """Return a place in the queue of `name`; a task that stops waiting there calls `step_out`."""
        alone = len(ticket.primitive.names) == 1
        wanted = None if single_try else wanted
        place = Place(asyncio.get_running_loop().create_future(), ticket, alone, wanted)
        entry = self.entries[name]
        if entry.queue is None:
            entry.queue = OrderedDict()
        entry.queue[place] = None
        if ticket.returns:
            entry.queue.move_to_end(place, last=False)
            self._admit(name, entry)  # it may share what the place behind it has to wait for
        if single_try:
            entry.single_tries = entry.single_tries or []
            entry.single_tries.append(place)
        return place

    def step_out(self, name: str, place: Place) -> None:
        """Stop waiting; a ticket that was let in at the same moment leaves again."""
        future = place.future
        if future.done() and not future.cancelled() and future.result():
            return  # its `Ticket.leave` lets the next in
        future.cancel()
        entry = self.entries.get(name)
        if entry is not None and entry.queue and place in entry.queue:
            del entry.queue[place]
            self._admit(name, entry)
            self.idle(name, entry)

    def leave(self, name: str, ticket: Ticket) -> None:
        """Take `ticket` out, and let in what can be let in now, in the order of the queue."""
        entry = self.entries[name]
        if entry.speaker is ticket:
            entry.speaker = None
        if not (entry.queue or entry.listened or ticket.notice_pending) and len(entry.inside) == 1:
            assert entry.inside[0] is ticket, "it was let in"
            del self.entries[name]  # by far the most frequent case: no other task knows of the name
            return
        entry.inside.remove(ticket)
        self._admit(name, entry, ticket)
        if not entry.inside:
            del self.entries[name]
        self.idle(name, entry)
        if ticket.notice_pending:  # handed to a task that has gone without asking, or may ask much later
            ticket.notice_pending = False
            self.admission.leave()
            self._announce(name)

    def admit(self, name: str) -> None:
        """Let in what nothing keeps out any more: what is in lets others in now."""
        self._admit(name, self.entries[name])

    def _admit(self, name: str, entry: NameEntry, after: Ticket | None = None) -> None:
        """Let in what nothing excludes any more, in the order of the queue; `after` is what has just left."""
        while entry.queue:
            place = next(iter(entry.queue))
            if not place.future.done():  # else its wait has just ended
                if not entry.admits(place.ticket.primitive):
                    return
                if after is not None and after.notice_pending and place.alone:  # it asks at once
                    after.notice_pending, place.ticket.notice_pending = False, True
                self._let_in(name, entry, place)
            else:
                del entry.queue[place]

    def let_pass(self, name: str) -> bool:
        """Let in what nothing that is in keeps out, whatever waits before it (R22); whether there was any."""
        entry, any_passed = self.entries[name], False
        for place in list(entry.queue or ()):
            if not place.future.done() and entry.admits(place.ticket.primitive):
                self._let_in(name, entry, place)
                any_passed = True
        return any_passed

    def _let_in(self, name: str, entry: NameEntry, place: Place) -> None:
        assert entry.queue is not None, "the place is in it"
        entry.inside.append(place.ticket)
        place.ticket.names += (name,)
        place.future.set_result(True)
        del entry.queue[place]

    def idle(self, name: str, entry: NameEntry) -> None:
        """Stop listening to releases of `name` if no task of this process waits for it, or contends."""
        if entry.listened and not entry.queue and all(ticket.held is not None for ticket in entry.inside):
            entry.listened = False
            self._on_idle(name)
