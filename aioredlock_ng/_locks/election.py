"""Leader election (R31, R32): what nodes are sent, observers, and what users hold: campaigns, leaderships."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias, final

from .. import _scripts
from .._clock import Clock
from .._core.command import Answer, Command, Proof, Purpose, Reply, Silence
from .._core.election import (
    Leader,
    LeaderUnknown,
    Look,
    Seen,
    confirmed,
    free_in,
    read_announcement,
    seen,
)
from .._core.keyspace import LEADER, mark_key
from .._core.policy import ExtensionPolicy, RetryPolicy
from .._core.quarantine import INCARNATION_CHANGED
from .._core.quorum import Vote
from .._kinds.primitive import Primitive, ms
from .._lock.holding import Holding
from .._lock.runner import act_for, current_task, in_task_of_its_own
from .._round.deadlines import ring
from .._round.outbox import Outbox
from .._round.releases import Releases
from .._round.round import Round, all_answered
from .._session.lifecycle import Lifecycle
from .._session.session import Session
from .._settings.options import Options, Renamed, Request, checked_names, checked_policy
from ..errors import ConfigurationError, LockLostError, QuorumUnavailableError, printable
from . import ASYNC_WITH, WITH, Uncopied, awaited, instead
from .lease import Lease, ReleaseReport
from .lock import Lock

_PARTS: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """One election, as the nodes know it."""

    name: str
    lock: bytes
    """The key of the mutex that campaigns are about."""
    announced: bytes
    """The key of the announcement, and the channel of its notifications to observers."""
    incarnation: bytes
    keeps: float
    """Seconds that an announcement lives: as long as a counter (R11), and at least for a ttl.  By then the
    leader has announced again, or leads no more."""

    def announce(self, leader: Leader) -> Command:
        """Build the announcement, which a leader sends to all nodes once it has won, not before (R31)."""
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: type(reply) is int,
            keys=(self.announced,),
            args=(b"%d" % leader.term, leader.holder.encode(), ms(self.keeps)),
            script=_scripts.ANNOUNCE,
        )

    def look(self) -> Command:
        """Build the command by which observers poll a node (R32)."""
        return Command(
            Purpose.OTHER,
            owner=b"",
            fits=_fits_look,
            keys=(self.lock, self.announced, self.incarnation),
            script=_scripts.OBSERVE,
            proof=Proof.CONDITIONAL,
        )


def subject_of(name: str, ttl: float, options: Options) -> Subject:
    """Return the election of that name under a manager's settings; `ttl` is its leaders', in seconds.

    Raises:
        ConfigurationError: the manager makes no fences.
        ValueError, TypeError: the name is not valid.
    """
    (name,) = checked_names((name,))
    if not options.fencing or options.incarnation is None:
        raise ConfigurationError(
            f"election {name!r}: its terms are fences, and this manager was made with fencing=False: "
            "leave that option out"
        )
    key = options.key(name)
    announced = mark_key(options.prefix, LEADER, key)
    return Subject(name, key, announced, options.incarnation, max(options.fence_ttl, ttl))


def _fits_look(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != _PARTS:
        return False
    votes, held, announced = reply
    return votes in (0, 1) and held in (0, 1) and isinstance(announced, bytes)


def read_look(reply: Reply) -> Answer:
    """Read what a node answered: GRANTED where it has a vote; `found` has the answer in either case."""
    if not isinstance(reply, list):
        reason = reply.reason if isinstance(reply, Silence) else ""
        return Answer(Vote.SILENT, reason)
    answer: list[Any] = reply  # as `fits` found it
    votes, held, announced = answer
    look = Look(votes == 1, held == 1, read_announcement(announced))
    if look.votes:
        return Answer(Vote.GRANTED, found=look)
    return Answer(Vote.SILENT, INCARNATION_CHANGED, found=look)


@final
class Announcement:
    """The announcement of one leader; it receives the answers to its own commands, and ignores them."""

    __slots__ = ("_outbox", "_releases", "_said_goodbye", "_subject", "leader")

    def __init__(self, outbox: Outbox, releases: Releases, subject: Subject, leader: Leader) -> None:
        self._outbox = outbox
        self._releases = releases
        self._subject = subject
        self._said_goodbye = False
        self.leader = leader

    def repeat(self) -> None:
        """Announce the term on all nodes; a term that was won stays won, so that this is never too late."""
        self._outbox.drain()  # commands from before this one are sent before it
        command = self._subject.announce(self.leader)
        for index, node in enumerate(self._outbox.nodes):
            node.submit(command, self, index)

    def say_goodbye(self) -> None:
        """Notify observers, once, that the leader has given up its lock."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self._releases.announce(self._subject.announced)

    @property
    def awaited(self) -> bool:
        """As in `Receiver`: a server that has forgotten the script is sent it once more."""
        return True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Do nothing: the next extension announces again."""


LOOK_EVERY: Final = 5.0
"""Seconds between two polls at most: a notification may be lost, and some nodes send none."""

LOOK_SELDOM: Final = 4.0
"""Seconds between two polls at least, unless notified: processes that were notified together spread out."""

LOOK_AGAIN: Final = 1.0
"""Seconds until the next poll where too few nodes with a vote have answered."""


def ask(outbox: Outbox, subject: Subject) -> Round:
    """Ask all nodes what they know of the election."""
    round_ = Round(outbox, read_look)
    round_.ask(subject.look(), outbox.node_timeout)
    return round_


def looks_in(round_: Round) -> dict[int, Look]:
    """Return what the nodes have answered, by their numbers."""
    found = {node: answer.found for node, answer in enumerate(round_.answers) if answer is not None}
    return {node: look for node, look in found.items() if isinstance(look, Look)}


@final
class Observation:
    """Shared by all observers of an election in a process; `on_over` is called when the last has left."""

    def __init__(self, subject: Subject, session: Session, ttl: float, on_over: Callable[[], object]) -> None:
        self.subject = subject
        self.ttl = ttl
        """The shortest of its leaders', as far as the observers know."""
        self.seen = Seen()
        self.looked = 0
        """The number of the latest poll to which enough nodes have answered."""
        self._fails_since: float | None = None  # on the manager's clock; since then all polls have failed
        self._session = session
        self._on_over = on_over
        self._begun = 0  # polls so far
        self._began_at = 0.0  # the last one, on the manager's clock
        self._free = frozenset[int]()  # the nodes that showed no lock at the one before, if it counts
        self._free_at = 0.0  # when that one began
        self._confirms = False  # whether the poll under way is such a second one
        self._round: Round | None = None
        self._again = False  # whether a notification came while the nodes were being asked
        self._timer: asyncio.TimerHandle | None = None
        self._observers: dict[Observer, asyncio.Future[bool] | None] = {}

    # -- observers -----------------------------------------------------------------------------

    def join(self, observer: Observer) -> int:
        """Add an observer; return the number of the poll that it has to wait for, which begins now."""
        if not self._observers:
            # Before the poll: a leader that is announced after it is not missed.
            self._session.notifications.watch(self.subject.announced, self.poll)
        self._observers[observer] = None
        return self.poll()

    def leave(self, observer: Observer) -> None:
        """Remove an observer."""
        del self._observers[observer]
        if not self._observers:
            self._on_over()
            if not self._session.outbox.loop.is_closed():
                self._session.notifications.unwatch(self.subject.announced)
                self._stop_timer()

    async def news(self, observer: Observer) -> None:
        """Wait until there may be news."""
        self._session.availability.check()
        future = self._observers[observer] = self._session.outbox.loop.create_future()
        await future

    def is_cut_off(self, ttl: float) -> bool:
        """Whether all polls have failed for `ttl` seconds: the leader from before may lead no more."""
        return self._fails_since is not None and self._session.clock.now() - self._fails_since > ttl

    @property
    def closing(self) -> bool:
        """Whether there will be no more news: the manager is being closed.

        Raises:
            ManagerClosedError: not by its user; other code has cancelled its tasks.
        """
        availability = self._session.availability
        if availability.failure is not None:
            raise availability.closed_error()
        return availability.closing

    def wake(self) -> None:
        """Wake all observers, to see what has changed."""
        for future in self._observers.values():
            if future is not None:
                ring(future)

    # -- polls ---------------------------------------------------------------------------------

    def poll(self) -> int:
        """Poll all nodes, now or after the poll under way; return the number of that poll."""
        # The poll under way may have missed the news, so that another one follows at once.
        if self._round is not None:
            self._again = True
            return self._begun + 1
        self._stop_timer()
        self._begun += 1
        self._began_at = self._session.clock.now()
        self._again = False
        self._round = round_ = ask(self._session.outbox, self.subject)
        round_.then(all_answered, self._answered)
        return self._begun

    def _answered(self) -> None:
        assert self._round is not None, "it is what was asked"
        looks, quorum = looks_in(self._round), self._session.outbox.quorum
        self._round = None
        within = self._session.clock.now() - self._free_at < self.ttl
        earlier, free = self._free if within else frozenset[int](), free_in(looks)
        self._free, self._free_at = free, self._began_at
        found = seen(self.seen, confirmed(self.seen, looks, earlier), quorum)
        # The first poll in which Q nodes showed no lock: the next one shows whether all were free at once.
        self._confirms = len(free) >= quorum and found is not None and not (found.free or self._confirms)
        if self._confirms:
            self.poll()
            return
        if found is not None:
            self.seen, self.looked, self._fails_since = found, self._begun, None
        elif self._fails_since is None:
            self._fails_since = self._session.clock.now()
        self.wake()
        # The last observer may have left, or the manager be closing: then no poll follows.
        if self._observers and not self._session.availability.closing:
            chance = self._session.random.random()
            pause = LOOK_AGAIN if found is None else LOOK_SELDOM + chance * (LOOK_EVERY - LOOK_SELDOM)
            self._timer = self._session.outbox.loop.call_later(
                0.0 if self._again else pause, self.poll, context=Context()
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


Told: TypeAlias = Leader | LeaderUnknown | None
"""An update for observers: a leader, None when there is none, or that nothing is known."""


@final
class Observer:
    """One observer, a context manager: it joins and leaves.

    An update stays true for `ttl` seconds while too few nodes answer.
    """

    __slots__ = ("_from", "_observation", "_told", "_ttl")

    def __init__(self, observation: Observation, ttl: float) -> None:
        self._observation = observation
        self._ttl = ttl
        self._from = 0  # the poll with which it began: the result of an earlier one may be seconds old
        self._told: tuple[Told, ...] = ()

    def __enter__(self) -> Observer:
        self._from = self._observation.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._observation.leave(self)

    async def next(self) -> tuple[Told] | None:
        """Wait for an update and return it in a tuple; None: the manager is being closed.

        Raises:
            ConfigurationError: the nodes cannot be one quorum.
        """
        observation = self._observation
        while not observation.closing:
            # Too few nodes have answered for a ttl: that is an update of its own.  Else the result of a poll
            # counts if the poll began after this observer joined, and the result is new to it.
            cut_off = observation.is_cut_off(self._ttl)
            news: tuple[Told] = (LeaderUnknown.UNKNOWN if cut_off else observation.seen.leader,)
            knows = observation.looked >= self._from and observation.seen.tells
            if (knows or cut_off) and news != self._told:
                self._told = news
                return news
            await observation.news(self)
        return None


@final
class Elections:
    """What a manager observes of elections; a part of the session (`Session.part`)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._observed: dict[bytes, Observation] = {}

    def observer(self, subject: Subject, ttl: float) -> Observer:
        """Return an observer, which shares its polls with the others of this process; it must join at once.

        See `Observer` for `ttl`.
        """
        key = subject.lock
        if key not in self._observed:
            over = partial(self._observed.pop, key)
            self._observed[key] = Observation(subject, self._session, ttl, on_over=over)
        self._observed[key].ttl = min(ttl, self._observed[key].ttl)
        return Observer(self._observed[key], ttl)

    async def look(self, subject: Subject) -> Leader | None:
        """Poll the nodes once, and return the newest leader; None when there is none.

        Raises:
            QuorumUnavailableError: too few nodes with a vote answered.
        """
        round_ = ask(self._session.outbox, subject)
        await round_.wait(all_answered)
        found = seen(Seen(), list(looks_in(round_).values()), self._session.outbox.quorum)
        if found is not None:
            return found.leader
        raise QuorumUnavailableError(
            f"election {printable((subject.name,))}: too few nodes with a vote answered",
            names=(subject.name,),
            votes=round_.votes(),
        )

    def close(self) -> None:
        """Wake all observers so that they end: the manager closes, and perhaps no connection ends with it."""
        for observation in self._observed.values():
            observation.wake()


SHORT_TERM: Final = 1.0
"""Seconds: a term that was no longer than this is followed by a pause."""

FIRST_PAUSE: Final = 0.1
"""Seconds of the pause after the first short term, at most."""

LONGEST_PAUSE: Final = 5.0
"""Seconds of the longest pause: it doubles with each short term in a row."""

_BETWEEN_TERMS: Final = RetryPolicy(base=FIRST_PAUSE, cap=LONGEST_PAUSE)


@final
class Pauses:
    """The pauses of one candidate that campaigns again and again."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._began = 0.0
        self._short = 0  # terms in a row

    def term_begins(self) -> None:
        """Note that the candidate leads."""
        self._began = self._clock.now()

    def term_ended(self) -> float:
        """Return the seconds to wait before the next campaign."""
        if self._clock.now() - self._began > SHORT_TERM:
            self._short = 0
            return 0.0
        self._short += 1
        return _BETWEEN_TERMS.backoff(self._short - 1, self._random.random(), least=0.5)


def unbounded(extension: ExtensionPolicy | None, default: ExtensionPolicy) -> ExtensionPolicy:
    """Return the policy that a leader's lock is extended by: without a limit.

    Raises:
        TypeError: `extension` is no `ExtensionPolicy`.
        ValueError: it is `ExtensionPolicy.off()`, or another one with ``max_extensions=0``.
    """
    if extension is not None:
        checked_policy(extension)
        if not extension.enabled:
            raise ValueError(f"a leader extends its lock: leave out max_extensions=0, got {extension!r}")
    return replace(default if extension is None else extension, max_extensions=None)


_WRITE: Final = "`async with manager.election(…).campaign() as leadership:`"


@final
@instead("`async with leadership:`", *WITH)
class Leadership(Uncopied):
    """One term of a leader, from the win of its campaign to its end.

    It ends by `resign`, with the ``async with`` of its campaign or of its own, or when it is lost (R7).
    """

    __slots__ = ("_announcement", "_lease")

    def __init__(self, lease: Lease, announcement: Announcement) -> None:
        self._lease = lease
        self._announcement = announcement

    def __repr__(self) -> str:
        state = f"leads {self.remaining:.1f}s" if self.held else "is over"
        return f"<Leadership {printable(self._lease.names)} term={self.term} {self.holder!r} {state}>"

    @property
    def name(self) -> str:
        """The name of the election."""
        return self._lease.name

    @property
    def term(self) -> int:
        """The number of this leadership: unique, and greater than those of all earlier ones (R10).

        Hand it to what the leader writes to, and let that refuse what comes with a smaller one than it has
        seen: nothing else stops a leader that stood still past its validity.  An integer below 2**53.
        """
        return self._announcement.leader.term

    @property
    def holder(self) -> str:
        """The label of this leader, which observers see."""
        return self._announcement.leader.holder

    @property
    def held(self) -> bool:
        """Whether it leads, as far as is known and by the clock; no I/O.  As `Lease.held`."""
        return self._lease.held

    @property
    def remaining(self) -> float:
        """Seconds of validity left, if no extension follows; 0 once it is over.  No I/O."""
        return self._lease.remaining

    @property
    def lost(self) -> asyncio.Event:
        """Set when the leadership is lost; a resignation is no loss."""
        return self._lease.lost

    def check(self) -> None:
        """Raise `LockLostError` if it does not lead any more; no I/O."""
        self._lease.check()

    def _check_end(self) -> None:
        self._lease._check_end()  # noqa: SLF001

    async def resign(self) -> ReleaseReport:
        """Give it up, so that another candidate wins at once; return what each node said.

        Idempotent; any task of the loop may call it, and none is cancelled by it.  As `Lease.release`.
        """
        self._lease._session.check_here()  # noqa: SLF001 (as `release` does)
        try:
            return await self._lease.release()
        finally:
            self._say_goodbye()

    def _enter_for(self, inside: tuple[object, ...]) -> None:
        """Arm it for a new block of a thread, the first of those that it is `inside` of.  Used by `sync`."""
        self._lease.check()
        act_for(inside)
        self._lease._bind()  # noqa: SLF001

    async def __aenter__(self) -> Self:
        """Make the current task the body of a leadership that was won without a block.

        Raises:
            LockLostError: it leads no more.
            RuntimeError: it has a block already.
        """
        await self._lease.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Resign; raises `LockLostError` when the leadership was lost, which has cancelled the block."""
        try:
            await self._lease.__aexit__(exc_type, exc, tb)
        finally:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Notify observers, if that is still possible: not in a forked child, nor when the loop has ended."""
        session = self._lease._session  # noqa: SLF001
        here = asyncio._get_running_loop()  # noqa: SLF001 (asyncio exports it; None without one)
        if here is session.loop and not session.inherited:
            self._announcement.say_goodbye()


@final
@instead(_WRITE, *WITH)
class Campaign(Uncopied):
    """One campaign of one candidate, made by `Election.campaign`: enter it with ``async with``, or await it.

    It waits until this candidate leads, as long as its election says.  Awaited, it returns the `Leadership`,
    to be entered with ``async with`` or ended by `Leadership.resign`; outside of a block no task is cancelled
    when it is lost.
    """

    __slots__ = ("_begun", "_election", "_leadership", "_lock")

    def __init__(self, election: Election, lock: Lock) -> None:
        self._election = election
        self._lock = lock
        self._begun = False
        self._leadership: Leadership | None = None

    def __repr__(self) -> str:
        return f"<Campaign {printable(self._lock.names)}>"

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("a campaign is used once: call campaign() for another one")
        self._begun = True

    def __await__(self) -> Generator[Any, Any, Leadership]:
        """Wait until this candidate leads; raises as ``async with`` does."""
        return self._win().__await__()

    async def _win(self) -> Leadership:
        self._begin()
        return self._election._inaugurated(await self._lock.acquire())  # noqa: SLF001

    async def __aenter__(self) -> Leadership:
        """Wait until this candidate leads, and run the block as the leader.

        Raises:
            LockTakenError, QuorumUnavailableError: the time limits of the election are over.
            ManagerClosedError: the manager is closed.
            ConfigurationError: the nodes cannot be one quorum.
            WouldDeadlockError: the task leads already.
        """
        self._begin()
        lease = await self._lock.__aenter__()
        self._leadership = self._election._inaugurated(lease)  # noqa: SLF001
        return self._leadership

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Resign.

        Raises:
            LockLostError: the leadership was lost, which has cancelled the block.
        """
        try:
            await self._lock.__aexit__(exc_type, exc, tb)
        finally:
            assert self._leadership is not None, "entered"
            self._leadership._say_goodbye()  # noqa: SLF001


@final
@instead(_WRITE, "__await__", *WITH, *ASYNC_WITH)
class Election(Renamed, Uncopied):
    """An election, made by `LockManager.election`: a description, reusable and shareable as a `Lock` is.

    It is decided by a lock of its name, which the leader extends without a limit.  In one process one
    candidate asks at a time; the others wait behind it.
    """

    __slots__ = ("_life", "_primitive", "_request", "_subject")

    def __init__(self, life: Lifecycle, primitive: Primitive, request: Request, subject: Subject) -> None:
        self._life = life
        self._primitive = primitive
        self._request = request
        self._subject = subject

    def __repr__(self) -> str:
        return f"<Election {printable(self._primitive.names)} ttl={self._request.ttl:g}s>"

    @property
    def name(self) -> str:
        """The name of the election, which is that of its lock."""
        return self._subject.name

    # -- to lead -------------------------------------------------------------------------------

    def campaign(self) -> Campaign:
        """Describe one campaign: ``async with election.campaign() as leadership:``.

        The block begins when this candidate leads, and is cancelled when it leads no more, before another one
        can (R7).
        """
        return Campaign(self, Lock(self._life, self._primitive, self._request))

    @awaited(_WRITE)
    async def try_campaign(self) -> Leadership | None:
        """Try once, without waiting; None when another candidate leads.

        Enter the `Leadership` with ``async with``, or end it by `Leadership.resign`.  Raises as
        `Lock.try_acquire` does.
        """
        lease = await Lock(self._life, self._primitive, self._request).try_acquire()
        return None if lease is None else self._inaugurated(lease)

    def _inaugurated(self, lease: Lease) -> Leadership:
        """Have a leader that has won announce it, now and with each extension (R31)."""
        session, holding = lease._session, lease._holding  # noqa: SLF001
        holder = self._request.holder
        leader = Leader(lease.fence, session.holder if holder is None else holder)
        announcement = Announcement(session.outbox, session.releases, self._subject, leader)
        assert isinstance(holding, Holding), "the lock of an election is not reentrant"
        holding.on_extended = announcement.repeat
        announcement.repeat()
        return Leadership(lease, announcement)

    async def run(self, lead: Callable[[Leadership], Awaitable[object]]) -> NoReturn:
        """Campaign again and again until cancelled, and call `lead` once for each leadership.

        `lead` is cancelled when its leadership is lost; then, and when it returns, the next campaign begins.
        While `lead` returns within a second, there is a pause before it that grows to five seconds.  A
        cancellation from outside ends it also where `lead` does not let that pass.

        Raises:
            LockTakenError, QuorumUnavailableError, ManagerClosedError, ConfigurationError: as a campaign.
            Exception: whatever `lead` raises, unless it is the `LockLostError` of its own leadership.
        """
        task, pauses = current_task(), self._pauses()
        while True:
            leadership: Leadership | None = None
            cancelled = task.cancelling()
            # `LockLostError` can come from `lead`, or from the block when it ends.  Of its own leadership it
            # begins the next campaign; of another lock, which `lead` used, it is the caller's.
            try:
                async with self.campaign() as leadership:
                    pauses.term_begins()
                    try:
                        await in_task_of_its_own(lead, leadership)
                    except (LockLostError, ExceptionGroup) as error:
                        if not self._has_ended(leadership, error):
                            raise
            except LockLostError as error:
                if not self._was_lost(leadership, error):
                    raise
            if task.cancelling() > cancelled:  # of this task, in which no code of `lead` has counted
                raise asyncio.CancelledError
            await asyncio.sleep(pauses.term_ended())

    def _pauses(self) -> Pauses:
        return Pauses(self._life.clock, self._life.random)

    def _has_ended(self, leadership: Leadership | None, error: Exception) -> bool:
        """Whether an error of `lead` is the end of its own leadership."""
        over = leadership is not None and (leadership.lost.is_set() or not leadership.held)
        return over and self._is_loss(error)

    def _was_lost(self, leadership: Leadership | None, error: LockLostError) -> bool:
        """Whether an error of the block says that this leadership was lost, not one before or beside it."""
        return leadership is not None and leadership.lost.is_set() and self._is_loss(error)

    def _is_loss(self, error: Exception) -> bool:
        """Whether an error, or each one of a group, is the loss of this election's lock."""
        if isinstance(error, ExceptionGroup):
            return all(map(self._is_loss, error.exceptions))
        return isinstance(error, LockLostError) and error.names == self._primitive.names

    # -- to follow -----------------------------------------------------------------------------

    async def observe(self) -> AsyncGenerator[Leader | LeaderUnknown | None, None]:
        """Yield the newest leader, or None when there is none; then again whenever that has changed (R32).

        After an outage that is longer than the `ttl` of this election it yields `LeaderUnknown.UNKNOWN`:
        another one may lead by then.  That is falsy, as None is.

        Each term was really won, by the leader with that label, and terms only grow.  A leader that stays,
        and whose announcement has reached a majority, is reported within a round trip; or within five
        seconds, where notifications are lost or a node is a client.  An update may be outdated when it is
        read, and short terms may be left out.  The iteration ends when the manager is closed.

        Raises:
            ManagerClosedError: the manager was closed before.
            ConfigurationError: the nodes cannot be one quorum.
        """
        session = await self._life.ready()
        with session.part(Elections).observer(self._subject, self._request.ttl) as observer:
            while (news := await observer.next()) is not None:
                yield news[0]

    async def leader(self) -> Leader | None:
        """Poll the nodes once: return the newest leader, or None when no leader is known.

        For a single check.  It remembers nothing, so that it may return an older leader than the call before,
        while an announcement has reached few nodes; `observe` never goes back.

        Raises:
            QuorumUnavailableError: too few nodes with a vote answered.
            ManagerClosedError, ConfigurationError: as `observe`.
        """
        session = await self._life.ready()
        return await session.part(Elections).look(self._subject)
