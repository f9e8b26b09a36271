"""Leader election for threads (R31, R32)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NoReturn, final

from .. import (
    Campaign,
    Election,
    Leader,
    Leadership,
    LeaderUnknown,
    LockLostError,
    ManagerClosedError,
    QuorumUnavailableError,
    ReleaseReport,
)
from .._locks import ASYNC_WITH, WITH, Uncopied, instead
from .._settings.options import Renamed
from ._entries import Entry
from ._lock import SyncLock, release_of
from ._thread import Call, LoopThread

_OVER: Final = object()
"""What stands for the end of what an observer is told: None says that there is no leader."""


_WRITE: Final = "`with manager.election(…).campaign() as leadership:`"


@final
@instead("`with leadership:`", *ASYNC_WITH)
class SyncLeadership(Uncopied):
    """A `Leadership` for threads: a loss raises at `check`, and at the end of the block."""

    def __init__(self, leadership: Leadership, thread: LoopThread) -> None:
        self._leadership, self._thread = leadership, thread
        self._entry: Entry | None = None

    def __repr__(self) -> str:
        return f"<Sync{repr(self._leadership)[1:]}"

    @property
    def name(self) -> str:
        """The name of the election."""
        return self._leadership.name

    @property
    def term(self) -> int:
        """The number of this leadership, for what the leader writes to; as `Leadership.term`."""
        return self._leadership.term

    @property
    def holder(self) -> str:
        """What this leader calls itself, for observers."""
        return self._leadership.holder

    @property
    def held(self) -> bool:
        """Whether it leads, by all that is known and by the clock."""
        return self._leadership.held

    @property
    def remaining(self) -> float:
        """Seconds of validity left, if no extension follows; 0 once it is over."""
        return self._leadership.remaining

    @property
    def lost(self) -> threading.Event:
        """Set when the leadership is lost: a thread can wait for it.  A resignation is no loss."""
        return self._thread.losses.watch(self, self._leadership._lease)  # noqa: SLF001

    def check(self) -> None:
        """Raise `LockLostError` if it does not lead any more; call it right before each write."""
        self._leadership.check()

    def resign(self) -> ReleaseReport:
        """Give it up, so that another candidate wins at once; return what each node said; idempotent."""
        return release_of(self._thread, self._leadership._lease, self._leadership.resign)  # noqa: SLF001

    def __enter__(self) -> SyncLeadership:
        """Run a block as the leader; for one from `SyncElection.try_campaign`; raises `LockLostError`."""
        entry = Entry(frame := sys._getframe(1))  # noqa: SLF001
        self._thread.entries.add(entry)
        inside = (entry.mark, *self._thread.entries.around(frame))
        self._thread.result(self._thread.submit(self._leadership._enter_for, inside))  # noqa: SLF001
        self._entry = entry
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Resign; raises `LockLostError` when the leadership was lost."""
        try:
            if not self._thread.inherited:
                self._thread.leave(self._leadership, *exc_info)
        except ManagerClosedError:  # then it was released with the manager
            if exc_info[1] is None:
                self._leadership._check_end()  # noqa: SLF001
        finally:  # not before: a handler's `close` would wait for it
            if self._entry is not None:
                self._thread.entries.discard(self._entry)
                self._entry.left()


@final
@instead(_WRITE, *ASYNC_WITH)
class SyncCampaign(Uncopied):
    """One campaign of one candidate: ``with election.campaign() as leadership:``, once."""

    def __init__(self, campaign: Campaign, thread: LoopThread) -> None:
        self._campaign, self._thread = campaign, thread
        self._lock = SyncLock(campaign._lock, thread)  # noqa: SLF001
        self.leadership: Leadership | None = None
        """The leadership, once it is won."""

    def __repr__(self) -> str:
        return f"<Sync{repr(self._campaign)[1:]}"

    def __enter__(self) -> SyncLeadership:
        """Wait until this candidate leads; raises as `Campaign` does."""
        campaign = self._campaign
        campaign._begin()  # noqa: SLF001
        frame = sys._getframe(1)  # noqa: SLF001
        lease = self._lock._enter(frame).lease  # noqa: SLF001
        try:
            inaugurated = campaign._election._inaugurated  # noqa: SLF001
            self.leadership = self._thread.result(self._thread.submit(inaugurated, lease))
        except BaseException as error:  # such as a KeyboardInterrupt, at any moment
            self._lock._leave(frame, type(error), error, error.__traceback__)  # noqa: SLF001
            raise
        return SyncLeadership(self.leadership, self._thread)

    def __exit__(self, *exc_info: object) -> None:
        """Resign; raises `LockLostError` when the leadership was lost."""
        try:
            self._lock._leave(sys._getframe(1), *exc_info)  # noqa: SLF001
        finally:
            if self.leadership is not None and not self._thread.inherited:
                with suppress(ManagerClosedError, QuorumUnavailableError):
                    self._thread.result(self._thread.submit(self.leadership._say_goodbye))  # noqa: SLF001


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
        call = self._thread.submit(self._election.try_campaign)
        try:
            leadership: Leadership | None = self._thread.result(call)
            return None if leadership is None else SyncLeadership(leadership, self._thread)
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            call.give_up()
            raise

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
            campaign = self.campaign()
            try:
                with campaign as leadership:
                    began = election._life.clock.now()  # noqa: SLF001
                    try:
                        lead(leadership)
                    except (LockLostError, ExceptionGroup) as error:
                        if not election._has_ended(campaign.leadership, error):  # noqa: SLF001
                            raise
            except LockLostError as error:
                if not election._was_lost(campaign.leadership, error):  # noqa: SLF001
                    raise
            short = election._short_terms(short, began)  # noqa: SLF001
            time.sleep(election._pause(short))  # noqa: SLF001

    def observe(self) -> Iterator[Leader | LeaderUnknown | None]:
        """Tell of leaders, as `Election.observe`: ``for leader in election.observe():``.

        The iteration waits for news, and ends when the manager is closed.
        """
        news = self._election.observe()
        told: Call | None = None
        try:
            while True:
                told = self._thread.submit(anext, news, _OVER)
                if (leader := self._thread.result(told, None)) is _OVER:
                    return
                yield leader
        finally:
            if told is not None:
                told.give_up()  # an interrupt has ended the waiting
            with suppress(ManagerClosedError, RuntimeError):  # collected in the loop, which closes it then
                self._thread.submit(news.aclose)

    def leader(self) -> Leader | None:
        """Look once: return the newest leader, or None when none is known of; as `Election.leader`."""
        return self._thread.call(self._election.leader)
