"""The local queue: requests of one process that exclude each other reach the nodes one by one (rule R13).

Tasks of one process that want the same name queue here, first in, first out, instead of competing over the
network.  The lock kind decides whether two requests exclude each other.  The queue saves traffic and is not
needed for safety: a task that is let in still has to win the quorum.

A contender is *inside* a name from the moment it is let in until it leaves: it may ask the nodes, or hold the
lock.  Example of a read-write lock: two readers hold "x", and then a writer W and a reader R want it.  W
excludes the readers and is queued.  R could share with the readers, but W is queued before it, so R is queued
behind W.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from .._clock import Clock
from .._core.cooldown import Cooldowns
from .._core.quorum import Tally
from .._core.seats import NO_SEAT, Seat
from .._kinds.primitive import Primitive
from .._round.deadlines import give_up, wait_for
from .._round.round import Round
from .._settings.options import Request
from ..errors import LockNotAcquiredError
from .handoff import HandoffWindows

if TYPE_CHECKING:
    from .handoff import Grant
    from .holding import Holding

MAX_WAITERS: Final = 65536
"""Most tasks of one process that wait for the same name."""

MAX_TRIES: Final = 128
"""Most attempts of one manager in flight at once.  Twice as many are no faster: an event loop takes some
30 ms to send them and read the answers, and commands behind them wait as long."""

MAX_QUIET: Final = 128
"""Most attempts beyond that, by tasks whose process has just had the name.  They leave in the same write as
the release before them; without a place, that release would have to notify other processes."""

MAX_IN_LINE: Final = 65536
"""Most calls of one manager in each of the two queues, of non-blocking calls and of the others."""

Place: TypeAlias = "asyncio.Future[bool]"
"""An entry in one of the queues: True when it gets a place, False when it is refused."""


@final
class AttemptLimiter:
    """Limits how many attempts of one manager may be in flight at once (R13).

    Commands on a connection cannot overtake each other.  If thousands of attempts left in one turn of the
    event loop, the extensions of held leases would queue behind them, and answers would come too late.  So an
    attempt takes a place first; if all places are taken, it is queued for one, first in, first out.  It keeps
    the place from the question to the verdict, which comes within a `node_timeout`, and never while its task
    waits for anything else: so no deadlock is possible here.  Extensions and releases need no place.

    A non-blocking call (``blocking_timeout=0``, `single_try`) has no time to wait behind calls that have
    some.  Such calls have a queue of their own, and the two queues are served in turn.  While the nodes
    answer, a non-blocking call waits one round trip for every half of all places before it.  When they do
    not, the non-blocking calls that have waited for a `node_timeout` are refused.
    """

    def __init__(self, clock: Clock, node_timeout: float) -> None:
        self.most = MAX_TRIES
        """Number of places; behind quiet releases `MAX_QUIET` more, or as many again if that is less."""
        self._clock = clock
        self._node_timeout = node_timeout
        # The two queues, each with the time since when a call waits.
        self._line: OrderedDict[Place, float] = OrderedDict()
        self._singles: OrderedDict[Place, float] = OrderedDict()
        self._ended = False
        self._single = True  # whether the next place goes to a non-blocking call
        self.in_flight = 0
        """Number of places taken: `most` or more while calls are queued."""

    def __len__(self) -> int:
        """Return how many calls are queued for a place."""
        return len(self._line) + len(self._singles)

    def enter(self) -> bool:
        """Take a place if one is free, else return False: then use `wait`.  `leave` gives it back."""
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

    async def wait(self, within: float | None, *, single_try: bool) -> bool:
        """Queue for a place, at most `within` seconds (None: no limit); False: there was none.

        That is when the queue is full, the time was up, the nodes do not answer to non-blocking calls, or the
        manager is being closed.
        """
        line = self._singles if single_try else self._line
        if self._ended or len(line) >= MAX_IN_LINE:
            return False
        place: Place = asyncio.get_running_loop().create_future()
        line[place] = self._clock.now()
        has_place = False
        try:
            has_place = await (place if within is None else wait_for(place, within))
        finally:
            if not has_place:
                self._step_out(place)
        return has_place

    def end(self) -> None:
        """Refuse all calls in the queues: the manager is being closed."""
        self._ended = True
        for place in (*self._line, *self._singles):
            give_up(place)

    def _step_out(self, place: Place) -> None:
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


@final
class Contender:
    """A call of `acquire` in the queues of its names; `leave` lets the next waiter in."""

    # Defaults on the class: most contenders never set these, which saves time in each cycle.
    names: tuple[str, ...] = ()
    """The names that it is inside of."""
    acquire_round: Round | None = None
    """The round by which it asks the nodes."""
    held: Holding | Grant | None = None
    """The lock that it has won, or that another task has handed to it (R43); None after it has left."""
    notice_pending: bool = False
    """Whether the release before it was quiet, because this contender asks the nodes at once; a place among
    the attempts in flight is kept for it.  See `handoff`."""
    seat: Seat = NO_SEAT
    """The mark of its call at the nodes while it waits, if the kind gives each call its own (R22)."""
    returns: bool = False
    """Whether it has been inside before: it is then queued before calls that came later."""

    def __init__(self, queue: LocalQueue, primitive: Primitive) -> None:
        self.queue = queue
        self.primitive = primitive

    def now_held(self, held: Holding, taken: Callable[[], LockNotAcquiredError]) -> None:
        """Store the lock that was won, and let the tasks behind this one know."""
        self.held = held
        for name in self.names:
            entry = self.queue.entries[name]
            # What the nodes refused earlier is out of date.
            entry.refusal = None
            # It waited at the nodes on behalf of its process; the next one that is refused may do so.
            if entry.representative is self:
                entry.representative = None
            # Others may share the lock now.  Example: a reader has won, and three readers are queued: all
            # three are let in, up to the next writer in the queue.
            if entry.queue:
                self.queue.admit(name)
            # Non-blocking calls that are still queued cannot share it: their verdict is "held".
            if entry.single_tries and entry.held is not None:
                entry.send_single_tries_away(taken())
            # This may have been the last task that waited for a release: unsubscribe.
            if entry.listened:
                self.queue.idle(name, entry)

    def becomes(self, weaker: Primitive) -> None:
        """Change to a weaker kind, which may let others in: a writer has become a reader (R23)."""
        self.primitive = weaker
        for name in self.names:
            self.queue.admit(name)

    @property
    def claims(self) -> bool:
        """Whether its call keeps others out while it waits: by marks at nodes, or from names still free."""
        return self.primitive.kind.claims or len(self.primitive.names) > 1

    def enter_in_order(self) -> str | None:
        """Enter the remaining names in order; return the first one that it has to wait for, if any.

        It is then inside only of the names before that one.  All calls enter names in the same order, so no
        two of them can wait for each other in a circle.
        """
        names = self.primitive.names
        for index, name in enumerate(names):
            # Inside already, since a wait for this name has ended; or free now.
            if name in self.names or self.queue.enter(name, self):
                continue
            # Example: the call wants a, b, c.  It waited for c first, is inside of c, and finds b taken.  It
            # must not keep c while it waits for b: the call that has b may be waiting for c.
            self.leave_names(tuple(later for later in names[index + 1 :] if later in self.names))
            return name
        return None

    def represents_process(self) -> bool:
        """Whether this task waits at the nodes on behalf of its whole process, after a refusal.

        One contender of a name does so.  Others that share the name and are refused, too, wait behind it.
        """
        entries = [self.queue.entries[name] for name in self.names]
        # Another contender was refused before.  Example: three readers of this process ask at once while a
        # writer elsewhere holds the lock: the first one waits for its release, the others queue here.
        if any(entry.representative not in (None, self) for entry in entries):
            return False
        for entry in entries:
            entry.representative = self
        return True

    def refused(self, error: LockNotAcquiredError, answered_at: float) -> None:
        """Store what the nodes answered, and when a quorum last answered, for the tasks behind this one."""
        for name in self.names:
            entry = self.queue.entries[name]
            entry.refusal, entry.answered_at = error, answered_at
            # Non-blocking calls waited for no more than this verdict.
            entry.send_single_tries_away(error)

    def listens(self) -> None:
        """Note that this process is subscribed to releases of the names."""
        for name in self.names:
            self.queue.entries[name].listened = True

    def keep_quiet(self) -> bool:
        """Whether the task of this process that is queued for its name asks as soon as this one leaves.

        If so, its release is not published, and a place among the attempts in flight is kept for that task.
        """
        # Without a place left there is no promise that the task asks in the same write: publish then.
        if self.primitive.heritable and self.queue.entries[self.names[0]].next_asks(self):
            self.notice_pending = self.queue.attempt_limiter.reserve()
        return self.notice_pending

    def next_waiter(self) -> QueueEntry | None:
        """Return the next waiter if this contender's lock can be handed to it unchanged (R43)."""
        mine = self.primitive
        # It has left already; or the kind does not pass on its locks between tasks.
        if not (self.names and mine.heritable):
            return None
        waiter = self.queue.entries[self.names[0]].next_in_line()
        # The next one wants another kind, a fair lock instead of a mutex, say: it has to ask the nodes.
        if waiter is None or waiter.contender.primitive.kind is not mine.kind:
            return None
        # The same kind, but further names: what this one has is a part of what the waiter wants.
        return waiter if waiter.contender.primitive.keys == mine.keys else None

    def requeue(self) -> None:
        """Leave and queue again: another contender represents the process at the nodes."""
        self.returns = True
        self.leave()

    def leave(self) -> None:
        """Leave all names, and let the next waiters in; a second call does nothing."""
        names, self.names = self.names, ()
        # The holding refers to this contender: without the circle, no work for the garbage collector.
        self.held = None
        queue = self.queue
        for name in names:
            entry = queue.entries[name]
            # No other task of this process has to do with the name: by far the most frequent case.
            if not (entry.queue or entry.listened or self.notice_pending) and len(entry.inside) == 1:
                assert entry.inside[0] is self, "it was let in"
                del queue.entries[name]
            else:
                queue.leave(name, self)

    def leave_names(self, names: tuple[str, ...]) -> None:
        """Leave some of the names, and let their next waiters in."""
        self.names = tuple(name for name in self.names if name not in names)
        for name in names:
            self.queue.leave(name, self)


@final
@dataclass(slots=True, eq=False)
class QueueEntry:
    """A contender in the queue of a name; `future` is True when it is let in, False when its wait is over."""

    future: asyncio.Future[bool]
    contender: Contender
    sole_name: bool
    """Whether its call wants only this name: it then asks the nodes as soon as it is let in."""
    wanted: Request | None = None
    """The request of its call; None for a non-blocking call, which is never handed a lock."""
    verdict: LockNotAcquiredError | None = None
    """The error that ended its wait: the nodes' answer to the contender inside."""


@final
class NameQueue:
    """One name: the contenders inside, and the queue of those that wait."""

    # Defaults on the class, as of a contender, and no `__init__`: one is made in each cycle.
    inside: list[Contender]
    queue: OrderedDict[QueueEntry, None] | None = None
    """The waiters in their order; None until the first one comes, since most names never have any."""
    refusal: LockNotAcquiredError | None = None
    """The error of the last attempt by a contender inside."""
    answered_at: float = 0.0
    """When a quorum last answered, by the manager's clock; of use if `refusal` is a missing quorum."""
    single_tries: list[QueueEntry] | None = None
    """The waiters of non-blocking calls, which wait for the verdict of a contender inside."""
    listened: bool = False
    """Whether this process is subscribed to releases of the name."""
    representative: Contender | None = None
    """The contender that was refused and waits at the nodes on behalf of this process."""

    @property
    def held(self) -> Holding | Grant | None:
        """A lock that a task of this process holds, if the name has no room for another holder."""
        found: Holding | Grant | None = None
        holders = 0
        for contender in self.inside:
            if contender.held is not None:
                found, holders = contender.held, holders + 1
                # A mutex is full with its first holder, a semaphore of three permits with its third.
                if contender.primitive.kind.full(holders):
                    return found
        return None

    @property
    def acquire_round(self) -> Round | None:
        """The round by which a contender inside asks the nodes, if there is one."""
        for contender in self.inside:
            if contender.acquire_round is not None:
                return contender.acquire_round
        return None

    def admits(self, primitive: Primitive, leaving: Contender | None = None) -> bool:
        """Whether the contenders inside let `primitive` in; the one that is `leaving` does not count.

        Example of a read-write lock: two readers are inside.  A third reader is let in if one of the two
        holds the lock.  If both still ask, it waits for their verdict.  A writer is not let in.
        """
        kind, contenders, holders = primitive.kind, 0, 0
        for contender in self.inside:
            if contender is leaving:
                continue
            # Two reasons to stay out: a contender inside was refused and waits at the nodes for its process,
            # so that another attempt would be refused as well; or the two kinds exclude each other.
            if contender is self.representative or kind.conflicts(contender.primitive.kind):
                return False
            # It shares the name, and is still asking.
            if contender.held is None:
                contenders += 1
            # It shares the name, and holds it: another one has good chances, too.
            else:
                holders += 1
        return kind.admits(contenders, holders)

    def next_asks(self, leaving: Contender) -> bool:
        """Whether the first waiter asks the nodes as soon as `leaving` has left."""
        waiter = self.next_in_line()
        # One that wants further names may have to wait for those first.
        return waiter is not None and waiter.sole_name and self.admits(waiter.contender.primitive, leaving)

    def next_in_line(self) -> QueueEntry | None:
        """Return the first waiter that still waits."""
        for waiter in self.queue or ():
            # Done: its time was up in this turn of the event loop, and its task has not run since.
            if not waiter.future.done():
                return waiter
        return None

    def send_single_tries_away(self, verdict: LockNotAcquiredError) -> None:
        """End the waits of non-blocking calls; each task then removes its own entry from the queue."""
        single_tries, self.single_tries = self.single_tries, None
        for waiter in single_tries or ():
            waiter.verdict = verdict
            give_up(waiter.future)


@final
class LocalQueue:
    """The queues of one manager, by name; a name has an entry while a contender is inside."""

    def __init__(
        self, attempt_limiter: AttemptLimiter, on_idle: Callable[[str], None], announce: Callable[[str], None]
    ) -> None:
        self.entries: dict[str, NameQueue] = {}
        # Called when no task of this process waits for a name any more, to unsubscribe from its releases.
        self._on_idle = on_idle
        # Called to publish a release that was quiet, when the task it was quiet for has not asked.
        self._announce = announce
        self.attempt_limiter = attempt_limiter
        self.handoff = HandoffWindows()
        self.cooldowns = Cooldowns()

    def inside(self) -> list[Contender]:
        """Return all contenders that are inside of a name."""
        return [contender for entry in self.entries.values() for contender in entry.inside]

    def listened(self, names: Iterable[str]) -> bool:
        """Whether this process is subscribed to releases of one of these names."""
        entries = (self.entries.get(name) for name in names)
        return any(entry.listened for entry in entries if entry is not None)

    def enter(self, name: str, contender: Contender) -> bool:
        """Let `contender` into `name` unless a contender inside or in the queue comes first."""
        entry = self.entries.get(name)
        # No other task of this process wants the name: by far the most frequent case.
        if entry is None:
            self.entries[name] = entry = NameQueue()
            entry.inside = [contender]
        # A waiter comes first, even if this contender could share with those inside: with two readers inside
        # and a writer in the queue, a third reader must not overtake the writer.
        elif entry.queue or not entry.admits(contender.primitive):
            return False
        # It shares the name with those inside: a reader beside readers, or another permit.
        else:
            entry.inside.append(contender)
        contender.names += (name,)
        return True

    def line_up(self, name: str, contender: Contender, wanted: Request | None) -> QueueEntry:
        """Return a new entry in the queue of `name`; a task that stops waiting calls `step_out`.

        `wanted` is the request of its call, None for a non-blocking one.
        """
        sole_name = len(contender.primitive.names) == 1
        waiter = QueueEntry(asyncio.get_running_loop().create_future(), contender, sole_name, wanted)
        entry = self.entries[name]
        if entry.queue is None:
            entry.queue = OrderedDict()
        entry.queue[waiter] = None
        # It was inside before, so it goes to the head.  It may be let in at once, where the waiter that was
        # first is not: a reader that returns may share with a reader inside, while a writer waits.
        if contender.returns:
            entry.queue.move_to_end(waiter, last=False)
            self.admit(name)
        if wanted is None:
            entry.single_tries = entry.single_tries or []
            entry.single_tries.append(waiter)
        return waiter

    def step_out(self, name: str, waiter: QueueEntry) -> None:
        """Remove an entry from the queue, unless its contender was let in at the same moment."""
        future = waiter.future
        # Let in, in the same turn of the event loop as a cancellation, say: it is inside now, and its task
        # calls `Contender.leave`, which lets the next one in.
        if future.done() and not future.cancelled() and future.result():
            return
        future.cancel()
        entry = self.entries.get(name)
        # Not in the queue any more: `admit` has met the entry with its wait over.
        if entry is not None and entry.queue and waiter in entry.queue:
            del entry.queue[waiter]
            # It may have kept others out.  Example: readers are inside, and the writer at the head of the
            # queue gives up: the readers behind it are let in.
            self.admit(name)
            self.idle(name, entry)

    def leave(self, name: str, contender: Contender) -> None:
        """Take `contender` out of `name`, and let in waiters in the order of the queue."""
        entry = self.entries[name]
        if entry.representative is contender:
            entry.representative = None
        entry.inside.remove(contender)
        # May pass the pending notification on to the contender that is let in.
        self.admit(name, contender)
        # With no contender inside, every waiter could be let in: the queue is empty, too.
        if not entry.inside:
            del self.entries[name]
        self.idle(name, entry)
        # The quiet release was for a task that has left without asking, or that wants further names and may
        # ask much later.  So give back the place kept for it, and notify the other processes after all.
        if contender.notice_pending:
            contender.notice_pending = False
            self.attempt_limiter.leave()
            self._announce(name)

    def admit(self, name: str, after: Contender | None = None) -> None:
        """Let in waiters from the head of the queue, up to the first that has to stay; `after` has just left.

        Example: a writer has left, and the queue is reader, reader, writer, reader.  The first reader is let
        in and asks.  Once it holds the lock, the second is let in.  The writer stays, and so does the reader
        behind it.
        """
        entry = self.entries[name]
        while entry.queue:
            waiter = next(iter(entry.queue))
            # The usual case: the head of the queue still waits.
            if not waiter.future.done():
                # It has to stay, and nothing may overtake it: the queue is first in, first out.
                if not entry.admits(waiter.contender.primitive):
                    return
                # The release before it was quiet, and it asks at once: the duty to notify the other processes
                # is now its own, and so is the place among the attempts in flight.
                if after is not None and after.notice_pending and waiter.sole_name:
                    after.notice_pending, waiter.contender.notice_pending = False, True
                self._let_in(name, entry, waiter)
            # Its wait has ended in this turn of the event loop: its task will call `step_out`.
            else:
                del entry.queue[waiter]

    def let_pass(self, name: str) -> bool:
        """Let in each waiter that those inside admit, regardless of those before it (R22).

        Returns whether there was one.
        """
        entry, any_passed = self.entries[name], False
        for waiter in list(entry.queue or ()):
            # Example: a reader is inside, and the queue is writer, reader, writer, reader.  If the reader
            # inside holds the lock, both queued readers pass the writers, which keep their order.
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
        """Unsubscribe from releases of `name` when no task of this process is queued for it or asks."""
        # All contenders inside hold the lock: none of them waits for a release.
        if (
            entry.listened
            and not entry.queue
            and all(contender.held is not None for contender in entry.inside)
        ):
            entry.listened = False
            self._on_idle(name)
