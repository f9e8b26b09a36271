"""The same locks for threads, without ``await``: `SyncLockManager` keeps a loop in a thread of its own.

    with SyncLockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        with manager.lock("job", ttl=30, blocking_timeout=5) as lease:
            lease.check()

A thread cannot be cancelled: a loss raises at `SyncLease.check`, to be called before each write, and at the
end of the block.  Threads may share a manager, but not those that run an event loop.  Nobody tells a thread
that it waits for a lock of its own: it waits until its `blocking_timeout`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Unpack, final

import anyio
from anyio.from_thread import BlockingPortal

from . import Lease, Lock, LockManager, LockOptions, ManagerClosedError, ReleaseReport


@final
class SyncLease:
    """A `Lease` for threads.  What else can be read from the `Lease` is in `lease`."""

    def __init__(self, lease: Lease, manager: SyncLockManager) -> None:
        self.lease, self._manager = lease, manager

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

    def extend(self, ttl: float | None = None) -> None:
        """Extend the validity; raises as `Lease.extend` does."""
        self._manager.submit(self.lease.extend, ttl).result()

    def release(self) -> ReleaseReport:
        """Release on all nodes, and return what each said; idempotent."""
        report: ReleaseReport = self._manager.submit(self.lease.release).result()
        return report


@final
class SyncLock(threading.local):
    """A `Lock` for threads: reusable, and safe to enter from many threads at once."""

    def __init__(self, lock: Lock, manager: SyncLockManager) -> None:
        self._lock, self._manager = lock, manager
        self._entered: list[SyncLease] = []  # by this thread: every thread has its own

    def acquire(self) -> SyncLease:
        """Wait for the lock, for somebody to `release` it; raises as `Lock.acquire` does."""
        return self._take(self._lock.acquire)

    def try_acquire(self) -> SyncLease | None:
        """Try once, without waiting; None when somebody holds the lock."""
        return self._take(self._lock.try_acquire)

    def _take(self, acquire: Callable[[], Coroutine[Any, Any, Lease | None]]) -> SyncLease:
        """Acquire in the loop.  A lease that an interrupt leaves to nobody is collected, and so released."""
        future = self._manager.submit(acquire)
        try:
            if (lease := future.result()) is not None:
                self._manager.submit(lease.bind).result()  # whoever closes the manager waits for its end
            return lease and SyncLease(lease, self._manager)
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            if not future.cancel() and future.exception() is None and future.result() is not None:
                with suppress(ManagerClosedError):
                    self._manager.submit(future.result().release)
            raise

    def __enter__(self) -> SyncLease:
        self._entered = [*self._entered, self.acquire()]  # in one step: a call could be interrupted
        return self._entered[-1]

    def __exit__(self, *exc_info: object) -> None:
        lease = self._entered.pop().lease
        if not self._manager.manager.inherited:  # otherwise a forked child leaves its parent's block
            try:
                self._manager.submit(lease.__aexit__, *exc_info).result()
            except ManagerClosedError:  # then it was released with the manager
                if exc_info[1] is None:
                    lease.check()


@final
class SyncLockManager:
    """A `LockManager` for threads, with the same arguments; its thread starts at the first use.

    Close it: one that is dropped keeps its thread and its connections until the process ends.
    `manager` is the one that it runs.  Of that only `statistics` and ``repr()`` are for other threads.
    """

    def __init__(self, nodes: Iterable[Any], **options: Any) -> None:
        self.manager = LockManager(nodes, on_lost="raise", **options)
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)
        self._gate, self._started = threading.RLock(), threading.Event()

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> SyncLock:
        """Describe a lock; the options are those of `LockManager.lock`, but a loss only raises."""
        return SyncLock(self.manager.lock(*names, **options), self)

    def close(self) -> None:
        """Release every lease and end the thread; idempotent.

        Waits for the blocks of other threads, at most until their deadline; they end in `LockLostError`.
        """
        if not self.manager.inherited:
            with suppress(ManagerClosedError):
                self.submit(self.manager.aclose).result()
            with self._gate, suppress(RuntimeError):  # another thread has stopped it
                self._portal.call(self._portal.stop)
            self._thread.join()

    def __enter__(self) -> SyncLockManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def _run(self) -> None:
        async with BlockingPortal() as self._portal:
            self._started.set()
            await self._portal.sleep_until_stopped()

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Run a function in the thread of the loop; locks and leases do.  Raises when that cannot be."""
        if self.manager.inherited:
            raise RuntimeError("this SyncLockManager was used before a fork: make one per process, after it")
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 (asyncio exports it)
            raise RuntimeError("a SyncLockManager would block this event loop: use a LockManager here")
        with self._gate:  # a loop that ends after it was seen to run would never answer
            if self._thread.ident is None:
                self._thread.start()
            self._started.wait()
            try:
                return self._portal.start_task_soon(function, *args)
            except RuntimeError as error:
                raise ManagerClosedError("the lock manager is closed") from error
