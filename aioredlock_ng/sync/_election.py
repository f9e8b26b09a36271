"""Leader election for threads (R31, R32)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn, final

from .. import (
    Campaign,
    Election,
    Leader,
    Leadership,
    LeaderUnknown,
    LockLostError,
    ManagerClosedError,
    ReleaseReport,
)
from .._locks import ASYNC_WITH, WITH, Uncopied, instead
from .._locks.election import LeadershipState
from .._settings.options import Renamed
from ._entries import Entry, inside
from ._lock import release_of
from ._thread import LoopThread

_OVER: Final = object()
"""The end of the news of an observer; None says that there is no leader."""


_WRITE: Final = "`with manager.election(…).campaign() as leadership:`"


@final
@instead("`with leadership:`", *ASYNC_WITH)
class SyncLeadership(LeadershipState):
    """A `Leadership` for threads: a loss raises at `check`, and at the end of the block."""

    def __init__(self, leadership: Leadership, thread: LoopThread, entry: Entry | None = None) -> None:
        super().__init__(leadership._lease, leadership._announcement)  # noqa: SLF001
        self._leadership, self._thread, self._entry = leadership, thread, entry

    def __repr__(self) -> str:
        return f"<Sync{repr(self._leadership)[1:]}"

    @property
    def lost(self) -> threading.Event:
        """Set when the leadership is lost: a thread can wait for it.  A resignation is no loss."""
        return self._thread.losses.watch(self._lease)

    def resign(self) -> ReleaseReport:
        """Give it up, so that another candidate wins at once; return what each node said; idempotent."""
        return release_of(self._thread, self._lease, self._leadership.resign)

    def __enter__(self) -> SyncLeadership:
        """Run a block as the leader; for one from `SyncElection.try_campaign`; raises `LockLostError`."""
        entry = Entry()
        self._thread.call(self._leadership._enter_for, inside())  # noqa: SLF001
        self._entry = entry
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Resign; raises `LockLostError` when the leadership was lost."""
        try:
            self._thread.leave(self._leadership, *exc_info)
            if self._entry is not None:
                self._entry.left()  # not before: a handler's `close` would wait for it
        except BaseException:  # such as a signal handler's
            self._thread.give_back(self._leadership)
            raise


@final
@instead(_WRITE, *ASYNC_WITH)
class SyncCampaign(Uncopied):
    """One campaign of one candidate: ``with election.campaign() as leadership:``, once."""

    def __init__(self, campaign: Campaign, thread: LoopThread) -> None:
        self._campaign, self._thread = campaign, thread
        self._leads: SyncLeadership | None = None

    def __repr__(self) -> str:
        return f"<Sync{repr(self._campaign)[1:]}"

    def __enter__(self) -> SyncLeadership:
        """Wait until this candidate leads; raises as `Campaign` does."""
        lock, entry = self._campaign._lock, Entry()  # noqa: SLF001
        leadership = self._thread.call(
            self._campaign._win_for,  # noqa: SLF001
            inside(),
            limit=lock._request.blocking_timeout,  # noqa: SLF001
            names=lock.names,
        )
        self._leads = SyncLeadership(leadership, self._thread, entry)
        return self._leads

    def __exit__(self, *exc_info: object) -> None:
        """Resign; raises `LockLostError` when the leadership was lost."""
        assert self._leads is not None, "entered"
        self._leads.__exit__(*exc_info)


@final
@instead(_WRITE, *WITH, *ASYNC_WITH)
class SyncElection(Renamed, Uncopied):
    """An `Election` for threads."""

    def __init__(self, election: Election, thread: LoopThread) -> None:
        self._election, self._thread = election, thread

    def __repr__(self) -> str:
        return f"<Sync{repr(self._election)[1:]}"

    @property
    def name(self) -> str:
        """The name of the election, which is that of its lock."""
        return self._election.name

    def campaign(self) -> SyncCampaign:
        """Describe one campaign: ``with election.campaign() as leadership:``."""
        return SyncCampaign(self._election.campaign(), self._thread)

    def try_campaign(self) -> SyncLeadership | None:
        """Try once, without waiting; None when another candidate leads: as `Election.try_campaign`."""
        leadership = self._thread.call(self._election.try_campaign)
        return None if leadership is None else SyncLeadership(leadership, self._thread)

    def run(self, lead: Callable[[SyncLeadership], object]) -> NoReturn:
        """Campaign again and again, and call `lead` once for each leadership, in this thread.

        A thread cannot be cancelled: `lead` is to call `SyncLeadership.check` before each write.  When that
        raises, and when `lead` returns, the next campaign begins, with the pauses of `Election.run`.

        Raises:
            LockTakenError, QuorumUnavailableError: the time limits of the election are over.
            ManagerClosedError: the manager is closed; also when another thread closes it.
            ConfigurationError: the nodes cannot be one quorum.
            Exception: whatever `lead` raises, unless it is the `LockLostError` of its own leadership.
        """
        election, began, short = self._election, 0.0, 0
        while True:
            leads: Leadership | None = None
            try:
                with self.campaign() as leadership:
                    leads = leadership._leadership  # noqa: SLF001
                    began = election._life.clock.now()  # noqa: SLF001
                    try:
                        lead(leadership)
                    except (LockLostError, ExceptionGroup) as error:
                        if not election._has_ended(leads, error):  # noqa: SLF001
                            raise
            except LockLostError as error:
                if not election._was_lost(leads, error):  # noqa: SLF001
                    raise
            short = election._short_terms(short, began)  # noqa: SLF001
            time.sleep(election._pause(short))  # noqa: SLF001

    def observe(self) -> Iterator[Leader | LeaderUnknown | None]:
        """Tell of leaders, as `Election.observe`: ``for leader in election.observe():``.

        The iteration waits for news, and ends when the manager is closed.
        """
        news = self._election.observe()
        try:
            while True:
                leader: Any = self._thread.call(anext, news, _OVER, limit=None)
                if leader is _OVER:
                    return
                yield leader
        finally:
            with suppress(ManagerClosedError, RuntimeError):  # collected in the loop, which closes it then
                self._thread.submit(news.aclose)

    def leader(self) -> Leader | None:
        """Look once: return the newest leader, or None when none is known of; as `Election.leader`."""
        return self._thread.call(self._election.leader)
