"""Leader election, as users hold it: elections, campaigns, leaderships (R31, R32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NoReturn, Self, final

from .._core.election import Leader, LeaderUnknown
from .._core.keyspace import LEADER, mark_key
from .._core.policy import ExtensionPolicy, RetryPolicy
from .._kinds.primitive import Primitive
from .._lock.body import act_for, current_task, in_task_of_its_own
from .._lock.election import Announcement, Subject, look, observe
from .._lock.holding import Holding
from .._session.lifecycle import Lifecycle
from .._settings.options import Options, Renamed, Request, checked_names, typed
from ..errors import ConfigurationError, LockLostError, printable
from . import ASYNC_WITH, WITH, Uncopied, awaited, instead
from .lease import HeldState, Lease, ReleaseReport
from .lock import Lock

SHORT_TERM: Final = 1.0
"""Seconds: a term that was no longer than this is followed by a pause."""

FIRST_PAUSE: Final = 0.1
"""Seconds of the pause after the first short term, at most."""

LONGEST_PAUSE: Final = 5.0
"""Seconds of the longest pause: it doubles with each short term in a row."""

_BETWEEN_TERMS: Final = RetryPolicy(base=FIRST_PAUSE, cap=LONGEST_PAUSE)


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


def unbounded(extension: ExtensionPolicy | None, default: ExtensionPolicy) -> ExtensionPolicy:
    """Return the policy that a leader's lock is extended by: without a limit.

    Raises:
        TypeError: `extension` is no `ExtensionPolicy`.
        ValueError: it is `ExtensionPolicy.off()`, or another one with ``max_extensions=0``.
    """
    if extension is not None:
        typed("extension", extension, ExtensionPolicy)
        if not extension.enabled:
            raise ValueError(f"a leader extends its lock: leave out max_extensions=0, got {extension!r}")
    return replace(default if extension is None else extension, max_extensions=None)


_WRITE: Final = "`async with manager.election(…).campaign() as leadership:`"


class LeadershipState(HeldState, Uncopied):
    """The state of a leadership, which any thread can read; no I/O."""

    __slots__ = ("_announcement", "_holding", "_lease", "_session")

    def __init__(self, lease: Lease, announcement: Announcement) -> None:
        self._lease = lease
        self._session, self._holding = lease._session, lease._holding  # noqa: SLF001 (for its state)
        self._announcement = announcement

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


@final
@instead("`async with leadership:`", *WITH)
class Leadership(LeadershipState):
    """One term of a leader, from the win of its campaign to its end.

    It ends by `resign`, with the ``async with`` of its campaign or of its own, or when it is lost (R7).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = f"leads {self.remaining:.1f}s" if self.held else "is over"
        return f"<Leadership {printable(self._lease.names)} term={self.term} {self.holder!r} {state}>"

    @property
    def lost(self) -> asyncio.Event:
        """Set when the leadership is lost; a resignation is no loss."""
        return self._lease.lost

    async def resign(self) -> ReleaseReport:
        """Give it up, so that another candidate wins at once; return what each node said.

        Idempotent; any task of the loop may call it, and none is cancelled by it.  As `Lease.release`.
        """
        self._session.check_here()  # as `release` does
        try:
            return await self._lease.release()
        finally:
            self._say_goodbye()

    async def _enter_for(self, inside: tuple[object, ...]) -> None:
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
        session = self._session
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

    def __await__(self) -> Generator[Any, Any, Leadership]:
        """Wait until this candidate leads; raises as ``async with`` does."""
        return self._win().__await__()

    async def _win(self, *, enters: bool = False) -> Leadership:
        if self._begun:
            raise RuntimeError("a campaign is used once: call campaign() for another one")
        self._begun = True
        lease = await self._lock.acquire()
        # Begin the block: no await since the win was judged (R7).
        if enters:
            lease._bind_or_release()  # noqa: SLF001
        return self._election._inaugurated(lease)  # noqa: SLF001

    async def _win_for(self, inside: tuple[object, ...]) -> Leadership:
        """Win for a thread's code `inside` of these blocks, of which it enters the first; used by `sync`."""
        act_for(inside)
        return await self._win(enters=True)

    async def __aenter__(self) -> Leadership:
        """Wait until this candidate leads, and run the block as the leader.

        Raises:
            LockTakenError, QuorumUnavailableError: the time limits of the election are over.
            ManagerClosedError: the manager is closed.
            ConfigurationError: the nodes cannot be one quorum.
            WouldDeadlockError: the task leads already.
        """
        self._leadership = await self._win(enters=True)
        return self._leadership

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Resign.

        Raises:
            LockLostError: the leadership was lost, which has cancelled the block.
        """
        assert self._leadership is not None, "entered"
        await self._leadership.__aexit__(exc_type, exc, tb)


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
        task, began, short = current_task(), 0.0, 0
        while True:
            leadership: Leadership | None = None
            cancelled = task.cancelling()
            # `LockLostError` can come from `lead`, or from the block when it ends.  Of its own leadership it
            # begins the next campaign; of another lock, which `lead` used, it is the caller's.
            try:
                async with self.campaign() as leadership:
                    began = self._life.clock.now()
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
            short = self._short_terms(short, began)
            await asyncio.sleep(self._pause(short))

    def _short_terms(self, before: int, began: float) -> int:
        """Return the number of short terms in a row, with the one that has begun then and ends now."""
        return 0 if self._life.clock.now() - began > SHORT_TERM else before + 1

    def _pause(self, short: int) -> float:
        """Return the seconds until the next campaign, after a number of short terms in a row."""
        return _BETWEEN_TERMS.backoff(short - 1, self._life.random.random(), least=0.5) if short else 0.0

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
        async with aclosing(observe(session, self._subject, self._request.ttl)) as updates:
            async for update in updates:
                yield update

    async def leader(self) -> Leader | None:
        """Poll the nodes once: return the newest leader, or None when no leader is known.

        For a single check.  It remembers nothing, so that it may return an older leader than the call before,
        while an announcement has reached few nodes; `observe` never goes back.

        Raises:
            QuorumUnavailableError: too few nodes with a vote answered.
            ManagerClosedError, ConfigurationError: as `observe`.
        """
        session = await self._life.ready()
        return await look(session, self._subject)
