"""Locks and leases for threads; what they do runs in the thread of the loop."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Unpack, final

from .. import (
    Lease,
    Lock,
    NodeRelease,
    QuorumUnavailableError,
    ReadWriteLock,
    ReleaseOutcome,
    ReleaseReport,
)
from .._locks import ASYNC_WITH, WITH, Uncopied, instead
from .._locks.lease import LeaseState
from .._locks.permits import end_of, until
from .._settings.options import Renamed, TimeLimits
from ._entries import Entry, generator_around, inside, leaving
from ._thread import LoopThread


def release_of(
    thread: LoopThread, lease: Lease, release: Callable[[], Coroutine[Any, Any, ReleaseReport]]
) -> ReleaseReport:
    """Release there; a loop that stands still does so when it goes on, and no node has answered by now."""
    try:
        return thread.call(release, goes_on=True)
    except QuorumUnavailableError as error:
        silent = [NodeRelease(vote.node, ReleaseOutcome.UNKNOWN, str(error)) for vote in lease.votes]
        return ReleaseReport(tuple(silent))


_WRITE: Final = "`with manager.lock(…) as lease:`, or `lease = manager.lock(…).acquire()` and release it"


@final
@instead(_WRITE, *WITH, *ASYNC_WITH)
class SyncLease(LeaseState, Uncopied):
    """A `Lease` for threads: a loss raises at `check`, and at the end of the block.

    `lease` is the one in the thread of the loop.
    """

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self.lease, self._thread = lease, thread
        self._session, self._holding = lease._session, lease._holding  # noqa: SLF001 (for its state)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.lease)[1:]}"

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is lost, a little before its validity ends: a thread can wait for it."""
        return self._thread.losses.watch(self.lease)

    def extend(self, ttl: float | timedelta | None = None) -> None:
        """Extend the validity; raises as `Lease.extend` does."""
        self._thread.call(self.lease.extend, ttl)

    def downgrade(self) -> None:
        """Turn a write lease into a read lease; as `Lease.downgrade`."""
        self._thread.call(self.lease.downgrade)

    def release(self) -> ReleaseReport:
        """Release on all nodes, and return what each said; idempotent."""
        return release_of(self._thread, self.lease, self.lease.release)


@final
@instead(f"{_WRITE}; in an event loop use a `LockManager`", "__await__", *ASYNC_WITH)
class SyncLock(Renamed, Uncopied):
    """A `Lock` for threads: reusable, and safe to enter from many threads at once.

    A block may be left in another thread than it was entered in, as frameworks do with generators.  Blocks
    that other code enters by `ExitStack`s, or by calls of `__enter__`, and does not leave in reverse order,
    need a lock object each.
    """

    def __init__(self, lock: Lock, thread: LoopThread) -> None:
        self._lock, self._thread = lock, thread
        self._entered: dict[Entry, None] = {}

    def __repr__(self) -> str:
        return f"<Sync{repr(self._lock)[1:]}"

    @property
    def name(self) -> str:
        """The lock's name; of several, the first in order."""
        return self._lock.name

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names, sorted and without duplicates."""
        return self._lock.names

    def locked(self) -> bool:
        """Whether a majority of the nodes has it taken, by whichever client: as `Lock.locked`."""
        return self._thread.call(self._lock.locked)

    def acquire(self) -> SyncLease:
        """Wait for the lock and return a lease, which must be released; raises as `Lock.acquire` does."""
        lease = self._take()
        assert lease is not None, "it waits"
        return lease

    def try_acquire(self) -> SyncLease | None:
        """Try once, without waiting; None when another client holds the lock."""
        return self._take(single_try=True)

    def _take(self, *, single_try: bool = False, enters: bool = False) -> SyncLease | None:
        lease = self._thread.call(
            functools.partial(self._lock._acquire_for, enters=enters, single_try=single_try),  # noqa: SLF001
            inside(),
            limit=0.0 if single_try else self._lock._request.blocking_timeout,  # noqa: SLF001
            names=self.names,
        )
        return None if lease is None else SyncLease(lease, self._thread)

    def __enter__(self) -> SyncLease:
        # From here on a signal handler's `close` does not wait for the block.
        block = Entry(generator_around(sys._getframe(1)))  # noqa: SLF001 (it is documented)
        lease = self._take(enters=True)
        assert lease is not None, "it waits"
        block.lease = lease.lease
        self._entered[block] = None  # last: after a further call an interrupt could leave it there
        return lease

    def __exit__(self, *exc_info: object) -> None:
        block: Entry | None = None
        try:
            generator = generator_around(sys._getframe(1))  # noqa: SLF001
            block = leaving(list(self._entered), generator)
            while self._entered.pop(block, block) is not None:  # another thread was quicker
                block = leaving(list(self._entered), generator)
            self._thread.leave(block.lease, *exc_info)
            block.left()  # not before: a handler's `close` would wait for it
        except BaseException:  # such as a signal handler's, at any moment: the block has ended
            with suppress(RuntimeError):  # no block was entered
                block = block or leaving(list(self._entered), generator_around(sys._getframe(1)))  # noqa: SLF001
                self._entered.pop(block, None)
                self._thread.give_back(block.lease)
            raise


@contextmanager
def collected(
    door: Lock, semaphore: Lock, weight: int, thread: LoopThread
) -> Iterator[tuple[SyncLease, ...]]:
    """Hold a number of permits of `semaphore`, collected inside `door`: as `_locks.permits` does."""
    end = end_of(semaphore)
    with ExitStack() as stack:
        with SyncLock(door, thread):
            leases = [stack.enter_context(SyncLock(until(semaphore, end), thread)) for _ in range(weight)]
        yield tuple(leases)


@final
@instead("`with manager.rwlock(…).read() as lease:`, or `.write()`", *WITH, *ASYNC_WITH)
class SyncReadWriteLock(Renamed, Uncopied):
    """A `ReadWriteLock` for threads."""

    def __init__(self, lock: ReadWriteLock, thread: LoopThread) -> None:
        self._lock, self._thread = lock, thread

    def __repr__(self) -> str:
        return f"<Sync{repr(self._lock)[1:]}"

    def read(self, **limits: Unpack[TimeLimits]) -> SyncLock:
        """Describe a read lock: many threads hold it at once, each with a lease of its own."""
        return SyncLock(self._lock.read(**limits), self._thread)

    def write(self, *, since: SyncLease | None = None, **limits: Unpack[TimeLimits]) -> SyncLock:
        """Describe a write lock: one holder alone; options and errors as of `ReadWriteLock.write`."""
        lease = since.lease if isinstance(since, SyncLease) else since
        return SyncLock(self._lock.write(since=lease, **limits), self._thread)
