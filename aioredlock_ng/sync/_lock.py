"""Locks and leases for threads; what they do runs in the thread of the loop."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Final, Unpack, final

from .. import (
    Lease,
    Lock,
    ManagerClosedError,
    Mode,
    NodeRelease,
    NodeVote,
    QuorumUnavailableError,
    ReadWriteLock,
    ReleaseOutcome,
    ReleaseReport,
)
from .._locks import ASYNC_WITH, WITH, Uncopied, instead
from .._settings.options import Renamed, TimeLimits
from ._entries import Entry, leaving
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
class SyncLease(Renamed, Uncopied):
    """A `Lease` for threads.  What else can be read from the `Lease` is in `lease`."""

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self.lease, self._thread = lease, thread

    def __repr__(self) -> str:
        return f"<Sync{repr(self.lease)[1:]}"

    @property
    def fence(self) -> int:
        """The fencing token, for the resource to check; as `Lease.fence`."""
        return self.lease.fence

    @property
    def mode(self) -> Mode | None:
        """``"read"`` or ``"write"`` of a read-write lock, None of any other; as `Lease.mode`."""
        return self.lease.mode

    @property
    def slot(self) -> int:
        """Which permit of a semaphore this is; as `Lease.slot`."""
        return self.lease.slot

    @property
    def unchanged(self) -> bool | None:
        """Whether no writer came since the read lease that was given; as `Lease.unchanged`."""
        return self.lease.unchanged

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is lost, a little before its validity ends: a thread can wait for it."""
        return self._thread.losses.watch(self, self.lease)

    @property
    def votes(self) -> tuple[NodeVote, ...]:
        """What each node said in the last round that was won."""
        return self.lease.votes

    @property
    def extensions(self) -> int:
        """How many times the validity was extended."""
        return self.lease.extensions

    @property
    def held(self) -> bool:
        """Whether the lock is ours, by all that is known and by the clock."""
        return self.lease.held

    @property
    def remaining(self) -> float:
        """Seconds of validity left; 0 once it is over."""
        return self.lease.remaining

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is still ours; call it right before each write."""
        self.lease.check()

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
    that one thread enters by `ExitStack`s, or by calls of `__enter__`, and does not leave in reverse order,
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
        lease = self._take(sys._getframe(1))  # noqa: SLF001
        assert lease is not None, "it waits"
        return lease

    def try_acquire(self) -> SyncLease | None:
        """Try once, without waiting; None when another client holds the lock."""
        return self._take(sys._getframe(1), single_try=True)  # noqa: SLF001

    def _take(
        self, frame: FrameType, *, single_try: bool = False, block: Entry | None = None
    ) -> SyncLease | None:
        """Acquire in the loop, for code of `frame`; a lease that an interrupt orphans is given back."""
        for each in list(self._entered):
            if each.was_interrupted(frame):
                self._give_back(each)
        acquire = functools.partial(
            self._lock._acquire_for,  # noqa: SLF001
            self._thread.entries.around(frame),
            block=None if block is None else block.mark,
            single_try=single_try,
        )
        call = self._thread.submit(acquire)
        try:
            limit = 0.0 if single_try else self._lock._request.blocking_timeout  # noqa: SLF001
            lease = self._thread.result(call, limit, names=self.names)
            return None if lease is None else SyncLease(lease, self._thread)
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            call.give_up()
            raise

    def __enter__(self) -> SyncLease:
        return self._enter(sys._getframe(1))  # noqa: SLF001

    def _enter(self, frame: FrameType) -> SyncLease:
        block = Entry(frame)
        self._thread.entries.add(block)
        lease = self._take(frame, block=block)
        assert lease is not None, "it waits"
        block.lease = lease.lease
        self._entered[block] = None  # last: after a further call an interrupt could leave it there
        return lease

    def __exit__(self, *exc_info: object) -> None:
        self._leave(sys._getframe(1), *exc_info)  # noqa: SLF001

    def _leave(self, frame: FrameType, *exc_info: object) -> None:
        block: Entry | None = None
        try:
            block = leaving(list(self._entered), frame)
            while self._entered.pop(block, block) is not None:  # another thread was quicker
                block = leaving(list(self._entered), frame)
            if not self._thread.inherited:  # otherwise a forked child leaves its parent's block
                self._thread.leave(block.lease, *exc_info)
            self._forget(block)  # not before: a handler's `close` would wait for it
        except BaseException as error:  # such as a signal handler's, at any moment: the block has ended
            with suppress(RuntimeError):  # no block was entered
                block = block or leaving(list(self._entered), frame)
                self._give_back(block)
            if not isinstance(error, ManagerClosedError):
                raise
            if block is not None and exc_info[1] is None:
                block.lease._check_end()  # noqa: SLF001 (it was released with the manager)

    def _give_back(self, block: Entry) -> None:
        """Release what a block has that has ended, without waiting."""
        self._forget(block)
        with suppress(ManagerClosedError, RuntimeError):  # a forked child, or a thread with a loop
            self._thread.submit(block.lease.release)

    def _forget(self, block: Entry) -> None:
        self._entered.pop(block, None)
        self._thread.entries.discard(block)
        block.left()


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
