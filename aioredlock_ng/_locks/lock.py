"""The lock: a description of what to lock and for how long; shareable and reusable, it holds nothing."""

from __future__ import annotations

import asyncio
import sys
from types import CodeType, FrameType, TracebackType
from typing import Final, final

from .._admin.survey import survey, votes_of
from .._kinds.primitive import Primitive
from .._lock.acquisition import Acquisition
from .._lock.body import act_for
from .._lock.reentry import outermost, reenter
from .._session import lifecycle
from .._session.lifecycle import Lifecycle
from .._settings.options import Renamed, Request
from ..errors import LockTakenError, QuorumUnavailableError, printable
from . import WITH, Uncopied, awaited, generator_of, instead
from .lease import Lease

_WRITE: Final = "`async with lock as lease:`, or `lease = await lock.acquire()` and release it"


@final
@instead(_WRITE, "__await__", *WITH)
class Lock(Renamed, Uncopied):
    """A description of a lock, made by `LockManager.lock` or a `ReadWriteLock`.

    Safe to enter from many tasks at once, and again before an earlier block is left.  Where exit stacks, or
    other code that enters for its caller, leave blocks of one task in another order than nested ones, give
    each a description of its own.
    """

    __slots__ = ("_entries", "_life", "_primitive", "_request", "_since")

    def __init__(
        self, life: Lifecycle, primitive: Primitive, request: Request, *, since: int | None = None
    ) -> None:
        self._life = life
        self._primitive = primitive
        self._request = request
        self._since = since
        self._entries: list[tuple[asyncio.Task[object] | None, tuple[int, CodeType] | None, Lease]] = []

    def __repr__(self) -> str:
        kind = self._primitive.kind
        of = f" permits={kind.permits}" if kind.permits else f" {kind.name}" if kind.letter else ""
        return f"<Lock {printable(self.names)}{of} ttl={self._request.ttl:g}s>"

    @property
    def name(self) -> str:
        """The lock's name; of several, the first in order."""
        return self._primitive.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names, sorted and without duplicates."""
        return self._primitive.names

    async def locked(self) -> bool:
        """Whether a majority of the nodes has it taken, by any client, this one included.  Does not wait.

        Of several names: any of them.  Of a semaphore: all of its permits.  The answer may be outdated when
        it is read: to get the lock, use `try_acquire`.

        Raises:
            QuorumUnavailableError: too few nodes answered to tell.
            ManagerClosedError, ConfigurationError: as `acquire`.
        """
        session, primitive = await self._life.start(read_only=True), self._primitive
        prefix = session.options.prefix
        keys = tuple(map(session.options.key, self.names))
        found = await survey(session, prefix, keys, len(keys))
        if any(lock.state == "unknown" for lock in found):
            msg = f"lock {printable(self.names)}: too few nodes answered to tell whether it is taken"
            raise QuorumUnavailableError(msg, names=self.names, votes=votes_of(session, found))
        # No permits are shown: something else than a semaphore has the name, and no permit can be acquired.
        return any(
            lock.state == "held" and (not lock.permits or primitive.kind.full(len(lock.permits)))
            for lock in found
        )

    @awaited(_WRITE)
    async def acquire(self) -> Lease:
        """Wait for the lock and return its lease; the caller has to release it.

        Raises:
            LockTakenError: another client held it until the `blocking_timeout` ran out.
            QuorumUnavailableError: too few nodes answered at the last attempt.
            WouldDeadlockError: the calling task is inside an ``async with`` of the same name, and the lock is
                not reentrant, or that block's lease does not cover it.
            LockLostError: the lock is reentrant, and the block is of a lease that is lost.
            RuntimeError: the lock is reentrant, and the task has 100 leases of it.
            ManagerClosedError: the manager is closed.
            ConfigurationError: as `LockManager.start`; or a majority cannot grant the lock, since something
                else than a lock is under its keys.
        """
        return await self._acquire(enters=False)

    @awaited(_WRITE)
    async def try_acquire(self) -> Lease | None:
        """Try once, without waiting; None when another client holds the lock.

        Raises:
            QuorumUnavailableError: too few nodes answered: the lock may be free, so this is not None.
            ManagerClosedError, ConfigurationError, LockLostError, RuntimeError: as `acquire`.
        """
        try:
            return await self._acquire(single_try=True, enters=False)
        except LockTakenError:
            return None

    async def _acquire(self, *, single_try: bool = False, enters: bool = True) -> Lease:
        """Acquire, and run the block of an ``async with`` under the lease; raises as `acquire` does."""
        life, request = self._life, self._request
        generator = generator_of(sys._getframe(1)) if enters else None  # noqa: SLF001 (it is documented)
        given = 0.0 if single_try else request.blocking_timeout
        # The task is inside of the lock already: one more lease of it, without I/O (R27).
        if request.reentrant and (again := self._reenter()) is not None:
            if enters:
                self._entries.append((again._bind(), generator, again))  # noqa: SLF001 (as below)
            return again
        if (override := lifecycle.override) is not None:
            given = override.blocking_timeout(given, self._primitive.kind)
        # The first use connects: that takes none of the caller's time.
        session = life.at_hand or await life.ready()
        began = session.clock.now()
        attempt_limiter, place = session.attempt_limiter, None
        # A burst: too many attempts are in flight.  Queue for a place before there is any other object, since
        # thousands of calls may wait here.  Non-blocking ones first look into the queues of their names.
        if attempt_limiter.in_flight >= attempt_limiter.most and given != 0:
            try:
                place = await attempt_limiter.wait(given, single_try=False)
            except BaseException as error:
                Acquisition(session, self._primitive, request, given, began).fail(error)
                raise
        acquisition = Acquisition(session, self._primitive, request, given, began, self._since, place)
        holding = await acquisition.run()
        lease = Lease(session, outermost(holding, session.releases) if request.reentrant else holding)
        # Begin the block: no await since the win was judged (R7).
        if enters:
            self._entries.append((lease._bind(), generator, lease))  # noqa: SLF001 (its leases are its subject)
        return lease

    __aenter__ = _acquire

    def _reenter(self) -> Lease | None:
        """Return a further lease of the lock that the calling task is inside of already (R27); else None."""
        for session in self._life.sessions_here:
            view = reenter(session, self._primitive, self._request, since=self._since)
            if view is not None:
                return Lease(session, view)
        return None

    async def _acquire_for(
        self, inside: tuple[object, ...], *, enters: bool, single_try: bool
    ) -> Lease | None:
        """Acquire for a thread's code `inside` of these blocks; the first is that which it `enters` (R27)."""
        act_for(inside)
        lease = await (self.try_acquire() if single_try else self.acquire())
        if lease is not None and enters:
            lease._bind_or_release()  # noqa: SLF001 (no await since the win was judged, R7)
        return lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lease of the block that ends here; raises as `Lease.__aexit__` does."""
        entries = self._entries
        # The usual case: one block is inside.
        lease = entries.pop()[2] if len(entries) == 1 else self._pop(sys._getframe(1))  # noqa: SLF001
        await lease.__aexit__(exc_type, exc, tb)

    def _pop(self, frame: FrameType) -> Lease:
        """Find which block the code of `frame` leaves (R7).

        An async generator, which may be left early and in another task, leaves the last one that it has
        entered.  Other code leaves the current task's last one; else, since fixtures leave in another task
        than they entered, one whose task has ended; else the oldest.
        """
        entries = self._entries
        # In a forked child no task is inside, and the lease has nothing to release.
        if self._life.inherited:
            return entries.pop()[2]
        current, generator = asyncio.current_task(), generator_of(frame)
        known = [i for i, (task, by, _) in enumerate(entries) if by == generator and (by or task is current)]
        own = [i for i, (task, _, _) in enumerate(entries) if task is current]
        orphaned = [i for i, (task, _, _) in enumerate(entries) if task is not None and task.done()]
        index = (known or own or (orphaned or [0])[:1])[-1]
        return entries.pop(index)[2]
