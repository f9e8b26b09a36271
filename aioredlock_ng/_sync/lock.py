"""Locks and leases for threads; what they do runs in the thread of the loop."""

from __future__ import annotations

import functools
import threading
from contextlib import suppress
from datetime import timedelta
from typing import final

from .. import Lease, Lock, ManagerClosedError, Mode, NodeVote, ReadWriteLock, ReleaseReport
from .thread import LoopThread


@final
class SyncLease:
    """A `Lease` for threads.  What else can be read from the `Lease` is in `lease`."""

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self.lease, self._thread = lease, thread

    def __repr__(self) -> str:
        return f"<Sync{repr(self.lease)[1:]}"

    @property
    def fence(self) -> int | None:
        """The fencing token, for the resource to check; as `Lease.fence`."""
        return self.lease.fence

    @property
    def mode(self) -> Mode | None:
        """``"read"`` or ``"write"`` of a read-write lock, None of any other; as `Lease.mode`."""
        return self.lease.mode

    @property
    def slot(self) -> int | None:
        """Which permit of a semaphore this is, None of any other lock; as `Lease.slot`."""
        return self.lease.slot

    @property
    def unchanged(self) -> bool | None:
        """Whether no writer came since the read lease that was given; as `Lease.unchanged`."""
        return self.lease.unchanged

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is lost, a little before its validity ends: a thread can wait for it."""
        return self._thread.losses.watch(self, self.lease.lost)

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
        return self._thread.call(self.lease.release)


@final
class SyncLock(threading.local):
    """A `Lock` for threads: reusable, and safe to enter from many threads at once."""

    def __init__(self, lock: Lock, thread: LoopThread) -> None:
        self._lock, self._thread = lock, thread
        self._entered: list[SyncLease] = []  # by this thread: every thread has its own

    def __repr__(self) -> str:
        return f"<Sync{repr(self._lock)[1:]}"

    def acquire(self) -> SyncLease:
        """Wait for the lock and return a lease, which must be released; raises as `Lock.acquire` does."""
        return self._take()

    def try_acquire(self) -> SyncLease | None:
        """Try once, without waiting; None when another client holds the lock."""
        return self._take(single_try=True)

    def _take(self, *, single_try: bool = False, block: bool = False) -> SyncLease:
        """Acquire in the loop.  A lease that an interrupt orphans is collected, and so released."""
        runner = self._thread.here.runner
        acquire = functools.partial(self._lock._acquire_for, runner, single_try=single_try)  # noqa: SLF001
        future = self._thread.submit(acquire)
        try:
            if (lease := future.result()) is not None:  # `aclose` waits for the end of what is bound
                bind = functools.partial(lease._bind_for, runner, block=block)  # noqa: SLF001
                self._thread.submit(bind).result()
            return lease and SyncLease(lease, self._thread)
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            if not future.cancel() and future.exception() is None and future.result() is not None:
                with suppress(ManagerClosedError):
                    self._thread.submit(future.result().release)
            raise

    def __enter__(self) -> SyncLease:
        self._entered = [*self._entered, self._take(block=True)]  # in one step: a call could be interrupted
        return self._entered[-1]

    def __exit__(self, *exc_info: object) -> None:
        lease = self._entered.pop().lease
        if not self._thread.inherited:  # otherwise a forked child leaves its parent's block
            try:
                self._thread.submit(lease.__aexit__, *exc_info).result()
            except ManagerClosedError:  # then it was released with the manager
                if exc_info[1] is None:
                    lease.check()


@final
class SyncReadWriteLock:
    """A `ReadWriteLock` for threads."""

    def __init__(self, lock: ReadWriteLock, thread: LoopThread) -> None:
        self._lock, self._thread = lock, thread

    def __repr__(self) -> str:
        return f"<Sync{repr(self._lock)[1:]}"

    def read(self) -> SyncLock:
        """Describe a read lock: many threads hold it at once, each with a lease of its own."""
        return SyncLock(self._lock.read(), self._thread)

    def write(self, *, since: SyncLease | None = None) -> SyncLock:
        """Describe a write lock: one holder alone; `since` and errors as of `ReadWriteLock.write`."""
        lease = since.lease if isinstance(since, SyncLease) else since
        return SyncLock(self._lock.write(since=lease), self._thread)
