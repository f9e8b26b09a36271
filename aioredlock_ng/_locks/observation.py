"""Observes an election: one poll of all nodes at a time, for all observers of a process together (R32).

Nothing here is a task.  A poll begins by a notification, by a timer, or because an observer has joined; its
result wakes the observers.  When the last one leaves, the subscription and the timer end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, final

from .._core.election import Leader, LeaderUnknown, Look, Seen, seen
from .._round.deadlines import ring
from .._round.outbox import Outbox
from .._round.round import Round, all_answered
from .._session.session import Session
from .subject import Subject, read_look

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


def looks_in(round_: Round) -> list[Look]:
    """Return what the nodes have answered."""
    found = (answer.found for answer in round_.answers if answer is not None)
    return [look for look in found if isinstance(look, Look)]


@final
class Observation:
    """Shared by all observers of an election in a process; `on_over` is called when the last has left."""

    def __init__(self, subject: Subject, session: Session, on_over: Callable[[], object]) -> None:
        self.subject = subject
        self.seen = Seen()
        self.looked = 0
        """The number of the latest poll to which enough nodes have answered."""
        self._fails_since: float | None = None  # on the manager's clock; since then all polls have failed
        self._session = session
        self._on_over = on_over
        self._begun = 0  # polls so far
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
        """Whether there will be no more news: the manager is being closed."""
        return self._session.availability.closing

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
        self._again = False
        self._round = round_ = ask(self._session.outbox, self.subject)
        round_.then(all_answered, self._answered)
        return self._begun

    def _answered(self) -> None:
        assert self._round is not None, "it is what was asked"
        found = seen(self.seen, looks_in(self._round), self._session.outbox.quorum)
        self._round = None
        if found is not None:
            self.seen, self.looked, self._fails_since = found, self._begun, None
        elif self._fails_since is None:
            self._fails_since = self._session.clock.now()
        self.wake()
        # The last observer may have left, or the manager be closing: then no poll follows.
        if self._observers and not self._session.availability.closing:
            chance = self._session.random.random()
            pause = LOOK_AGAIN if found is None else LOOK_SELDOM + chance * (LOOK_EVERY - LOOK_SELDOM)
            self._timer = self._session.outbox.loop.call_later(0.0 if self._again else pause, self.poll)

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
