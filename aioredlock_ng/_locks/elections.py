"""A manager's part in elections, beside the locks of their campaigns: announcements and observers."""

from __future__ import annotations

from functools import partial
from typing import final

from .._core.election import Leader, Seen, seen
from .._round.round import all_answered
from .._session.session import Session
from ..errors import QuorumUnavailableError, printable
from .announcement import Announcement
from .observation import Observation, Observer, ask, looks_in
from .subject import Subject


@final
class Elections:
    """Announces, and observes; a part of the session (`Session.part`)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._outbox = session.outbox
        self._observed: dict[bytes, Observation] = {}

    def announcement(self, subject: Subject, leader: Leader) -> Announcement:
        """Return the announcement of a leader that has won."""
        return Announcement(self._outbox, self._session.releases, subject, leader)

    def observer(self, subject: Subject, ttl: float) -> Observer:
        """Return an observer, which shares its polls with the others of this process; it must join at once.

        See `Observer` for `ttl`.
        """
        key = subject.lock
        if key not in self._observed:
            over = partial(self._observed.pop, key)
            self._observed[key] = Observation(subject, self._session, on_over=over)
        return Observer(self._observed[key], ttl)

    async def look(self, subject: Subject) -> Leader | None:
        """Poll the nodes once, and return the newest leader; None when there is none.

        Raises:
            QuorumUnavailableError: too few nodes with a vote answered.
        """
        round_ = ask(self._outbox, subject)
        await round_.wait(all_answered)
        found = seen(Seen(), looks_in(round_), self._outbox.quorum)
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
