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
from .attempt_limiter import AttemptLimiter
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
class Contender:
    """The right to contend for some names; `leave` lets the next in line in."""

    queue: LocalQueue
    primitive: Primitive
    names: tuple[str, ...] = ()
    """Those that it was let in for, and has not left."""
    acquire_round: Round | None = None
    """What the contender is asking the nodes."""
    held: Held | None = None
    """What it has won, or another task has left to it (R43); nothing once it has left."""
    notice_pending: bool = False
    """Whether the release before it was quiet, because it asks at once; a waiter among the tries in flight is
    kept for that question.  See `handoff`."""
    seat: Seat = NO_SEAT
    """What marks its call at the nodes while it waits, if the kind has marks of its own (R22)."""
    returns: bool = False
    """Whether it was in before: its waiter is before those of calls that came later."""

    def now_held(self, held: Held, taken: Callable[[], LockNotAcquiredError]) -> None:
        """Tell the tasks behind this one that the names are held now."""
        self.held = held
        for name in self.names:
            entry = self.queue.entries[name]
            entry.refusal = None
            if entry.representative is self:
                entry.representative = None
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
        for waiter, name in enumerate(names):
            if name in self.names or self.queue.enter(name, self):
                continue
            self.leave_names(tuple(later for later in names[waiter + 1 :] if later in self.names))
            return name
        return None

    def represents_process(self) -> bool:
        """Whether this contender, which was refused, is the one of its process that waits for the names.

        Another one that shares them may be, which was refused before.
        """
        entries = [self.queue.entries[name] for name in self.names]
        if any(entry.representative not in (None, self) for entry in entries):
            return False
        for entry in entries:
            entry.representative = self
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
        """Whether a task of this process waits for what this contender is in for, a single name."""
        return len(self.names) == 1 and bool(self.queue.entries[self.names[0]].queue)

    def keep_quiet(self) -> bool:
        """Tell whether another task of this process asks as soon as this one leaves.

        If so, the release need not be published, and a waiter is kept for the question.
        """
        if self.primitive.heritable and self.followed and self.queue.entries[self.names[0]].next_asks(self):
            self.notice_pending = self.queue.attempt_limiter.reserve()
        return self.notice_pending

    def next_waiter(self) -> QueueEntry | None:
        """Return the next in line, if it wants what this one has, and may have it as it is (R43)."""
        mine = self.primitive
        if not (self.names and mine.heritable):
            return None
        waiter = self.queue.entries[self.names[0]].next_in_line()
        if waiter is None or waiter.contender.primitive.kind is not mine.kind:
            return None
        return waiter if waiter.contender.primitive.keys == mine.keys else None

    def requeue(self) -> None:
        """Leave, to queue again: another one that was refused, too, waits for both."""
        self.returns = True
        self.leave()

    def leave(self) -> None:
        """Let the next in line in, once."""
        names, self.names = self.names, ()
        self.held = None  # what is held knows this contender, too: no work for the collector
        for name in names:
            self.queue.leave(name, self)

    def leave_names(self, names: tuple[str, ...]) -> None:
        """Let the next in line in for some of the names that it is in for."""
        self.names = tuple(name for name in self.names if name not in names)
        for name in names:
            self.queue.leave(name, self)


@final
@dataclass(slots=True, eq=False)
class QueueEntry:
    """A waiter in the queue; `future` is True when its contender was let in, False when waiting is over."""

    future: asyncio.Future[bool]
    contender: Contender
    sole_name: bool
    """Whether this name is all that is wanted: then the first in line asks at once."""
    wanted: Wanted | None = None
    """What its call asks for; None of a single try, which is never handed a lock."""
    verdict: LockNotAcquiredError | None = None
    """What the contender before a single try was told: it waits for no more than that."""


@final
@dataclass(slots=True, eq=False)
class NameQueue:
    """One name: which contenders are in, and which waiters wait."""

    inside: list[Contender]
    queue: OrderedDict[QueueEntry, None] | None = None
    """The waiters that wait, once there is one; most names are passed without."""
    refusal: LockNotAcquiredError | None = None
    """What the nodes said last to a contender."""
    answered_at: float = 0.0
    """Since when no quorum has answered, by the manager's clock, if that is the `refusal`."""
    single_tries: list[QueueEntry] | None = None
    """The waiters that wait for a verdict on the contender, not for their turn."""
    listened: bool = False
    """Whether this process listens to releases of the name."""
    representative: Contender | None = None
    """The contender that was refused and waits, for those behind it, too."""

    @property
    def held(self) -> Held | None:
        """What a task of this process holds under the name, if no other could have it beside that one."""
        found: Held | None = None
        holders = 0
        for contender in self.inside:
            if contender.held is not None:
                found, holders = contender.held, holders + 1
                if contender.primitive.kind.full(holders):
                    return found
        return None

    @property
    def acquire_round(self) -> Round | None:
        """What a contender that is in is asking the nodes."""
        for contender in self.inside:
            if contender.acquire_round is not None:
                return contender.acquire_round
        return None

    def admits(self, primitive: Primitive, leaving: Contender | None = None) -> bool:
        """Whether no contender that is in, but for the one that is `leaving`, keeps `primitive` out."""
        kind, contenders, holders = primitive.kind, 0, 0
        for contender in self.inside:
            if contender is leaving:
                continue
            if contender is self.representative or kind.conflicts(contender.primitive.kind):
                return False
            if contender.held is None:
                contenders += 1
            else:
                holders += 1
        return kind.admits(contenders, holders)

    def next_asks(self, leaving: Contender) -> bool:
        """Whether the first in line asks as soon as this contender has left."""
        waiter = self.next_in_line()
        return waiter is not None and waiter.sole_name and self.admits(waiter.contender.primitive, leaving)

    def next_in_line(self) -> QueueEntry | None:
        """Return the first waiter whose wait is not over."""
        for waiter in self.queue or ():
            if not waiter.future.done():
                return waiter
        return None

    def send_single_tries_away(self, verdict: LockNotAcquiredError) -> None:
        """Send away the waiters that wait for no more than a verdict; each steps out of the queue itself."""
        single_tries, self.single_tries = self.single_tries, None
        for waiter in single_tries or ():
            waiter.verdict = verdict
            give_up(waiter.future)


@final
class LocalQueue:
    """The queues of one manager, by name; a name has an entry while a contender is in for it."""

    __slots__ = ("_announce", "_on_idle", "attempt_limiter", "cooldowns", "entries", "handoff")

    def __init__(
        self, attempt_limiter: AttemptLimiter, on_idle: Callable[[str], None], announce: Callable[[str], None]
    ) -> None:
        self.entries: dict[str, NameQueue] = {}
        self._on_idle = on_idle  # called when no task waits any more for a name that was listened to
        self._announce = announce  # called when a name is free, and no process has been told
        self.attempt_limiter = attempt_limiter
        self.handoff = HandoffWindows()
        self.cooldowns = Cooldowns()

    def listened(self, names: Iterable[str]) -> bool:
        """Whether this process listens to releases of one of these names."""
        entries = (self.entries.get(name) for name in names)
        return any(entry.listened for entry in entries if entry is not None)

    def enter(self, name: str, contender: Contender) -> bool:
        """Let `contender` in for `name` unless something that is in, or waits, excludes it."""
        entry = self.entries.get(name)
        if entry is None:
            self.entries[name] = NameQueue([contender])
        elif entry.queue or not entry.admits(contender.primitive):
            return False
        else:
            entry.inside.append(contender)
        contender.names += (name,)
        return True

    def line_up(
        self, name: str, contender: Contender, *, single_try: bool, wanted: Wanted | None = None
    ) -> QueueEntry:
        """Return a waiter in the queue of `name`; a task that stops waiting there calls `step_out`."""
        sole_name = len(contender.primitive.names) == 1
        wanted = None if single_try else wanted
        waiter = QueueEntry(asyncio.get_running_loop().create_future(), contender, sole_name, wanted)
        entry = self.entries[name]
        if entry.queue is None:
            entry.queue = OrderedDict()
        entry.queue[waiter] = None
        if contender.returns:
            entry.queue.move_to_end(waiter, last=False)
            self._admit(name, entry)  # it may share what the waiter behind it has to wait for
        if single_try:
            entry.single_tries = entry.single_tries or []
            entry.single_tries.append(waiter)
        return waiter

    def step_out(self, name: str, waiter: QueueEntry) -> None:
        """Stop waiting; a contender that was let in at the same moment leaves again."""
        future = waiter.future
        if future.done() and not future.cancelled() and future.result():
            return  # its `Ticket.leave` lets the next in
        future.cancel()
        entry = self.entries.get(name)
        if entry is not None and entry.queue and waiter in entry.queue:
            del entry.queue[waiter]
            self._admit(name, entry)
            self.idle(name, entry)

    def leave(self, name: str, contender: Contender) -> None:
        """Take `contender` out, and let in what can be let in now, in the order of the queue."""
        entry = self.entries[name]
        if entry.representative is contender:
            entry.representative = None
        if not (entry.queue or entry.listened or contender.notice_pending) and len(entry.inside) == 1:
            assert entry.inside[0] is contender, "it was let in"
            del self.entries[name]  # by far the most frequent case: no other task knows of the name
            return
        entry.inside.remove(contender)
        self._admit(name, entry, contender)
        if not entry.inside:
            del self.entries[name]
        self.idle(name, entry)
        if contender.notice_pending:  # handed to a task that has gone without asking, or may ask much later
            contender.notice_pending = False
            self.attempt_limiter.leave()
            self._announce(name)

    def admit(self, name: str) -> None:
        """Let in what nothing keeps out any more: what is in lets others in now."""
        self._admit(name, self.entries[name])

    def _admit(self, name: str, entry: NameQueue, after: Contender | None = None) -> None:
        """Let in what nothing excludes any more, in the order of the queue; `after` is what has just left."""
        while entry.queue:
            waiter = next(iter(entry.queue))
            if not waiter.future.done():  # else its wait has just ended
                if not entry.admits(waiter.contender.primitive):
                    return
                if after is not None and after.notice_pending and waiter.sole_name:  # it asks at once
                    after.notice_pending, waiter.contender.notice_pending = False, True
                self._let_in(name, entry, waiter)
            else:
                del entry.queue[waiter]

    def let_pass(self, name: str) -> bool:
        """Let in what nothing that is in keeps out, whatever waits before it (R22); whether there was any."""
        entry, any_passed = self.entries[name], False
        for waiter in list(entry.queue or ()):
            if not waiter.future.done() and entry.admits(waiter.contender.primitive):
                self._let_in(name, entry, waiter)
                any_passed = True
        return any_passed

    def _let_in(self, name: str, entry: NameQueue, waiter: QueueEntry) -> None:
        assert entry.queue is not None, "the waiter is in it"
        entry.inside.append(waiter.contender)
        waiter.contender.names += (name,)
        waiter.future.set_result(True)
        del entry.queue[waiter]

    def idle(self, name: str, entry: NameQueue) -> None:
        """Stop listening to releases of `name` if no task of this process waits for it, or contends."""
        if (
            entry.listened
            and not entry.queue
            and all(contender.held is not None for contender in entry.inside)
        ):
            entry.listened = False
            self._on_idle(name)
