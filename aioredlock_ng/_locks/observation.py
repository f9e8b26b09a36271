"""What a process sees of an election: one look at all nodes at a time, for all its observers together (R32).

Nothing here is a task.  A look begins by a notice, by a timer, or because an observer has come; what it comes
to wakes the observers.  The last one that leaves takes subscription and timer along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, final

from .._core.election import Leader, LeaderUnknown, Look, Seen, seen
from .._round.futures import ring
from .._round.outbox import Outbox
from .._round.round import Round, all_answered
from .._session.session import Session
from .subject import Subject, read_look

LOOK_EVERY: Final = 5.0
"""Seconds between two looks at most: a notice may be lost, and some nodes tell of none."""

LOOK_SELDOM: Final = 4.0
"""Seconds between two looks at least, without a notice: processes that were told together come apart."""

LOOK_AGAIN: Final = 1.0
"""Seconds until the next look where too few nodes with a vote have answered."""


def ask(outbox: Outbox, subject: Subject) -> Round:
    """Ask all nodes what they show."""
    round_ = Round(outbox, read_look)
    round_.ask(subject.look(), outbox.node_timeout)
    return round_


def looks_in(round_: Round) -> list[Look]:
    """Return what the nodes have shown."""
    found = (answer.found for answer in round_.answers if answer is not None)
    return [look for look in found if isinstance(look, Look)]


@final
class Observation:
    """What all observers of an election in a process share; `on_over` is called when the last has left."""

    def __init__(self, subject: Subject, session: Session, on_over: Callable[[], object]) -> None:
        self.subject = subject
        self.seen = Seen()
        self.looked = 0
        """The number of the last look to which enough nodes have answered."""
        self._fails_since: float | None = None  # on the manager's clock, since when no look has told anything
        self._session = session
        self._on_over = on_over
        self._begun = 0  # looks so far
        self._round: Round | None = None
        self._again = False  # whether there was news while the nodes were being asked
        self._timer: asyncio.TimerHandle | None = None
        self._observers: dict[Observer, asyncio.Future[bool] | None] = {}

    # -- observers -----------------------------------------------------------------------------

    def join(self, observer: Observer) -> int:
        """Have one more, and return the number of the look that it is to wait for, which begins now."""
        if not self._observers:
            # First: what is announced after the look is told.
            self._session.notifications.watch(self.subject.announced, self.poll)
        self._observers[observer] = None
        return self.poll()

    def leave(self, observer: Observer) -> None:
        """Have one less."""
        del self._observers[observer]
        if not self._observers:
            self._on_over()
            if not self._session.outbox.loop.is_closed():
                self._session.notifications.unwatch(self.subject.announced)
                self._stop_timer()

    async def news(self, observer: Observer) -> None:
        """Wait until there may be some."""
        self._session.availability.check()
        future = self._observers[observer] = self._session.outbox.loop.create_future()
        await future

    def is_cut_off(self, ttl: float) -> bool:
        """Whether looks have told nothing for so many seconds: a leader of that time may be one no more."""
        return self._fails_since is not None and self._session.clock.now() - self._fails_since > ttl

    @property
    def closing(self) -> bool:
        """Whether there will be none: the manager is being closed."""
        return self._session.availability.closing

    def wake(self) -> None:
        """Let all observers see what there is."""
        for future in self._observers.values():
            if future is not None:
                ring(future)

    # -- looks ---------------------------------------------------------------------------------

    def poll(self) -> int:
        """Look at all nodes, now or when the look under way is over; returns the number of that look."""
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
        if self._observers and not self._session.availability.closing:
            chance = self._session.random.random()
            pause = LOOK_AGAIN if found is None else LOOK_SELDOM + chance * (LOOK_EVERY - LOOK_SELDOM)
            self._timer = self._session.outbox.loop.call_later(0.0 if self._again else pause, self.poll)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


Told: TypeAlias = Leader | LeaderUnknown | None
"""What an observer is told: a leader, that there is none, or that nothing is known."""


@final
class Observer:
    """One of those that observe; it joins and leaves as a context manager does.

    What was told holds for `ttl` seconds without an answer of enough nodes.
    """

    __slots__ = ("_from", "_observation", "_told", "_ttl")

    def __init__(self, observation: Observation, ttl: float) -> None:
        self._observation = observation
        self._ttl = ttl
        self._from = 0  # the look with which it began: what others have seen may be of some seconds ago
        self._told: tuple[Told, ...] = ()

    def __enter__(self) -> Observer:
        self._from = self._observation.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._observation.leave(self)

    async def next(self) -> tuple[Told] | None:
        """Wait for news, and return the leader, or that there is none, or that nothing is known.

        None: the manager is being closed.

        Raises:
            ConfigurationError: the nodes cannot be one quorum.
        """
        observation = self._observation
        while not observation.closing:
            cut_off = observation.is_cut_off(self._ttl)
            news: tuple[Told] = (LeaderUnknown.UNKNOWN if cut_off else observation.seen.leader,)
            knows = observation.looked >= self._from and observation.seen.tells
            if (knows or cut_off) and news != self._told:
                self._told = news
                return news
            await observation.news(self)
        return None
