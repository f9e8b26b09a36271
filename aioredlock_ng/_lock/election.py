"""An election at the nodes: the announcements of its leaders, and the polls of its observers (R31, R32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from .. import _scripts
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
from .._core.quarantine import INCARNATION_CHANGED
from .._core.quorum import Vote
from .._kinds.primitive import ms
from .._round.outbox import Outbox
from .._round.releases import Releases
from .._round.round import Round, all_answered, keep
from ..errors import QuorumUnavailableError, printable

if TYPE_CHECKING:
    from .session import Session

LOOK_EVERY: Final = 5.0
"""Seconds between two polls at most: a notification may be lost, and some nodes send none."""

LOOK_SELDOM: Final = 4.0
"""Seconds between two polls at least, unless notified: processes that were notified together spread out."""

LOOK_AGAIN: Final = 1.0
"""Seconds until the next poll where too few nodes with a vote have answered."""

Update: TypeAlias = Leader | LeaderUnknown | None
"""An update for observers: a leader, None when there is none, or that nothing is known."""

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
    """The announcement of one leader."""

    __slots__ = ("_outbox", "_releases", "_said_goodbye", "_subject", "leader")

    def __init__(self, outbox: Outbox, releases: Releases, subject: Subject, leader: Leader) -> None:
        self._outbox = outbox
        self._releases = releases
        self._subject = subject
        self._said_goodbye = False
        self.leader = leader

    def repeat(self) -> None:
        """Announce the term on all nodes; a term that was won stays won, so that this is never too late."""
        round_ = Round(self._outbox, keep)
        # As if a task waited for it: a server that has forgotten the script is sent it once more.  The next
        # extension announces again.
        round_.then(all_answered, lambda: None)
        round_.ask(self._subject.announce(self.leader), self._outbox.node_timeout)

    def say_goodbye(self) -> None:
        """Notify observers, once, that the leader has given up its lock."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self._releases.announce(self._subject.announced)


def ask(outbox: Outbox, subject: Subject) -> Round:
    """Ask all nodes what they know of the election."""
    round_ = Round(outbox, read_look)
    round_.ask(subject.look(), outbox.node_timeout)
    return round_


def looks_in(round_: Round) -> dict[int, Look]:
    """Return what the nodes have answered, by their numbers."""
    found = {node: answer.found for node, answer in enumerate(round_.answers) if answer is not None}
    return {node: look for node, look in found.items() if isinstance(look, Look)}


async def look(session: Session, subject: Subject) -> Leader | None:
    """Poll the nodes once, and return the newest leader; None when there is none.

    Raises:
        QuorumUnavailableError: too few nodes with a vote answered.
    """
    round_ = ask(session.outbox, subject)
    await round_.wait(all_answered)
    found = seen(Seen(), list(looks_in(round_).values()), session.outbox.quorum)
    if found is not None:
        return found.leader
    raise QuorumUnavailableError(
        f"election {printable((subject.name,))}: too few nodes with a vote answered",
        names=(subject.name,),
        votes=round_.votes(),
    )


@final
class Observation:
    """One election as all of its observers in a process see it: they share its polls."""

    def __init__(self, session: Session, subject: Subject, ttl: float) -> None:
        self.subject = subject
        self.ttl = ttl
        """The shortest of its leaders', as far as the observers know."""
        self.seen = Seen()
        self.looked = 0
        """The number of the latest poll to which enough nodes have answered."""
        self._fails_since: float | None = None  # on the manager's clock; since then all polls have failed
        self._session = session
        self._begun = 0  # polls so far
        self._began_at = 0.0  # the last one, on the manager's clock
        self._free = frozenset[int]()  # the nodes that showed no lock at the one before, if it counts
        self._free_at = 0.0  # when that one began
        self._confirms = False  # whether the poll under way is such a second one
        self._round: Round | None = None
        self._again = False  # whether a notification came while the nodes were being asked
        self._timer: asyncio.TimerHandle | None = None
        self._observers = 0
        self._news = asyncio.Event()  # a new one for each update

    # -- observers -----------------------------------------------------------------------------

    def join(self) -> int:
        """Add an observer; return the number of the poll that it has to wait for, which begins now."""
        if not self._observers:
            # Before the poll: a leader that is announced after it is not missed.
            self._session.notifications.watch(self.subject.announced, self.poll)
        self._observers += 1
        return self.poll()

    def leave(self) -> None:
        """Remove an observer."""
        self._observers -= 1
        if not self._observers:
            del self._session.observed[self.subject.lock]
            if not self._session.loop.is_closed():
                self._session.notifications.drop(self.subject.announced)
                self._stop_timer()

    def is_cut_off(self, ttl: float) -> bool:
        """Whether all polls have failed for `ttl` seconds: the leader from before may lead no more."""
        return self._fails_since is not None and self._session.clock.now() - self._fails_since > ttl

    async def news(self) -> None:
        """Wait until there may be news."""
        await self._news.wait()

    def wake(self) -> None:
        """Wake all observers, to see what has changed."""
        # The next one first: after an error, observers still wait for one that the next poll sets (R44).
        following = asyncio.Event()
        self._news.set()
        self._news = following

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
        try:
            # The last observer may have left, or the manager be closing: then no poll follows.
            if self._observers and not self._session.availability.closing:
                chance = self._session.random.random()
                pause = LOOK_AGAIN if found is None else LOOK_SELDOM + chance * (LOOK_EVERY - LOOK_SELDOM)
                self._timer = self._session.loop.call_later(
                    0.0 if self._again else pause, self.poll, context=Context()
                )
        finally:
            self.wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def observe(session: Session, subject: Subject, ttl: float) -> AsyncGenerator[Update, None]:
    """Yield each update; one stays true for `ttl` seconds while too few nodes answer.

    All observers of this process share their polls.  The iteration ends when the manager is closed.

    Raises:
        ConfigurationError: the nodes cannot be one quorum.
        ManagerClosedError: other code has cancelled the manager's tasks.
    """
    observation = session.observed.get(subject.lock)
    if observation is None:
        observation = session.observed[subject.lock] = Observation(session, subject, ttl)
    observation.ttl = min(ttl, observation.ttl)
    availability = session.availability
    first, last = observation.join(), None
    try:
        while not availability.closing:
            # Too few nodes have answered for a ttl: that is an update of its own.  Else the result of a poll
            # counts if the poll began after this observer joined, and the result is new to it.
            cut_off = observation.is_cut_off(ttl)
            update: Update = LeaderUnknown.UNKNOWN if cut_off else observation.seen.leader
            knows = observation.looked >= first and observation.seen.tells
            if (knows or cut_off) and (update,) != last:
                last = (update,)
                yield update
            else:
                availability.check()
                await observation.news()
        if availability.failure is not None:
            raise availability.closed_error()
    finally:
        observation.leave()
