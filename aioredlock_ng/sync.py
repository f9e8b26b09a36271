"""The same locks for threads, without ``await``: `SyncLockManager` keeps a loop in a thread of its own.

    with SyncLockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        with manager.lock("job", ttl=30, blocking_timeout=5) as lease:
            lease.check()

A thread cannot be cancelled: a loss raises at `SyncLease.check`, to be called before each write, and at the
end of the block.  Threads may share a manager, but not those that run an event loop.  With
``reentrant=True`` a thread may go again into a lock that it is inside of by ``with``.  One that waits for a
lock of its own without that gets no `WouldDeadlockError`: it waits until its `blocking_timeout`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, Unpack, final
from weakref import WeakKeyDictionary

import anyio
from anyio.from_thread import BlockingPortal

from . import (
    Finding,
    Lease,
    Lock,
    LockManager,
    LockOptions,
    ManagerClosedError,
    ManagerStatistics,
    Mode,
    NodeInitialisation,
    NodeInspection,
    NodeVote,
    ReadWriteLock,
    ReadWriteLockOptions,
    ReleaseReport,
    Survey,
)
from ._decorator import lock_in_mode
from ._template import name_filler, sample_name
from .events import Hooks, Lost

P = ParamSpec("P")
R = TypeVar("R")


@final
class SyncLease:
    """A `Lease` for threads.  What else can be read from the `Lease` is in `lease`."""

    def __init__(self, lease: Lease, manager: SyncLockManager) -> None:
        self.lease, self._manager = lease, manager

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
    def unchanged(self) -> bool | None:
        """Whether no writer came since the read lease that was given; as `Lease.unchanged`."""
        return self.lease.unchanged

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is lost, a little before its validity ends: a thread can wait for it."""
        return self._manager.losses.watch(self)

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
        self._manager.submit(self.lease.extend, ttl).result()

    def downgrade(self) -> None:
        """Turn a write lease into a read lease; as `Lease.downgrade`."""
        self._manager.submit(self.lease.downgrade).result()

    def release(self) -> ReleaseReport:
        """Release on all nodes, and return what each said; idempotent."""
        report: ReleaseReport = self._manager.submit(self.lease.release).result()
        return report


@final
class Losses(Hooks):
    """Wakes the threads that wait for the loss of a lease."""

    def __init__(self) -> None:
        self._events: WeakKeyDictionary[SyncLease, threading.Event] = WeakKeyDictionary()
        self._mutex = threading.Lock()

    def watch(self, lease: SyncLease) -> threading.Event:
        """Return what is set when `lease` is lost, and now if it was: one event, whichever thread asks."""
        with self._mutex:
            event = self._events.setdefault(lease, threading.Event())
        self._wake()
        return event

    def on_lost(self, event: Lost) -> None:
        """Take note of a loss; called in the loop."""
        self._wake()

    def _wake(self) -> None:
        with self._mutex:
            for lease, lost in self._events.items():
                if lease.lease.lost.is_set():
                    lost.set()


@final
class _Here(threading.local):
    """What stands for the calling thread: a number would be used again by a later one."""

    def __init__(self) -> None:
        self.thread = object()


@final
class SyncLock(threading.local):
    """A `Lock` for threads: reusable, and safe to enter from many threads at once."""

    def __init__(self, lock: Lock, manager: SyncLockManager) -> None:
        self._lock, self._manager = lock, manager
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
        thread = self._manager.here.thread
        acquire = functools.partial(self._lock._acquire_for, thread, single_try=single_try)  # noqa: SLF001
        future = self._manager.submit(acquire)
        try:
            if (lease := future.result()) is not None:  # `aclose` waits for the end of what is bound
                bind = functools.partial(lease._bind_for, thread, block=block)  # noqa: SLF001
                self._manager.submit(bind).result()
            return lease and SyncLease(lease, self._manager)
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            if not future.cancel() and future.exception() is None and future.result() is not None:
                with suppress(ManagerClosedError):
                    self._manager.submit(future.result().release)
            raise

    def __enter__(self) -> SyncLease:
        self._entered = [*self._entered, self._take(block=True)]  # in one step: a call could be interrupted
        return self._entered[-1]

    def __exit__(self, *exc_info: object) -> None:
        lease = self._entered.pop().lease
        if not self._manager.inherited:  # otherwise a forked child leaves its parent's block
            try:
                self._manager.submit(lease.__aexit__, *exc_info).result()
            except ManagerClosedError:  # then it was released with the manager
                if exc_info[1] is None:
                    lease.check()


@final
class SyncReadWriteLock:
    """A `ReadWriteLock` for threads."""

    def __init__(self, lock: ReadWriteLock, manager: SyncLockManager) -> None:
        self._lock, self._manager = lock, manager

    def __repr__(self) -> str:
        return f"<Sync{repr(self._lock)[1:]}"

    def read(self) -> SyncLock:
        """Describe a read lock: many threads hold it at once, each with a lease of its own."""
        return SyncLock(self._lock.read(), self._manager)

    def write(self, *, since: SyncLease | None = None) -> SyncLock:
        """Describe a write lock: one holder alone; `since` and errors as of `ReadWriteLock.write`."""
        lease = since.lease if isinstance(since, SyncLease) else since
        return SyncLock(self._lock.write(since=lease), self._manager)


@final
class SyncLockManager:
    """A `LockManager` for threads, with the same arguments; its thread starts at the first use.

    Close it: one that is dropped keeps its thread and its connections until the process ends.
    `manager` is the one that it runs.
    """

    def __init__(self, nodes: Iterable[Any], **options: Any) -> None:
        self._run_over(functools.partial(LockManager, nodes), options)

    @classmethod
    def from_env(cls, **options: Any) -> SyncLockManager:
        """Make a manager over the nodes that `REDLOCK_URLS` lists; as `LockManager.from_env`."""
        manager = cls.__new__(cls)
        manager._run_over(LockManager.from_env, options)  # noqa: SLF001 (one of this very class)
        return manager

    def _run_over(self, make: Callable[..., LockManager], options: dict[str, Any]) -> None:
        hooks = options.pop("hooks", ())
        self.losses = Losses()
        if isinstance(hooks, Iterable) and not isinstance(hooks, Hooks):  # else `make` says what is wrong
            hooks = (self.losses, *hooks)
        self.manager = make(on_lost="raise", hooks=hooks, **options)
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)
        self.here = _Here()
        self._started_in: int | None = None  # the process that the thread runs in
        self._gate, self._started = threading.RLock(), threading.Event()

    def __repr__(self) -> str:
        return f"<Sync{repr(self.manager)[1:]}"

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> SyncLock:
        """Describe a lock; the options are those of `LockManager.lock`, but a loss only raises."""
        return SyncLock(self.manager.lock(*names, **options), self)

    def rwlock(self, *names: str, **options: Unpack[ReadWriteLockOptions]) -> SyncReadWriteLock:
        """Describe a read-write lock; the options are those of `LockManager.rwlock`."""
        return SyncReadWriteLock(self.manager.rwlock(*names, **options), self)

    def locked(
        self, template: str, *, mode: Mode | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function under the lock that `template` names; as `LockManager.locked`.

        A loss raises `LockLostError` when the function has returned.

        Raises:
            ValueError: at decoration, when a field of the template is no parameter of the function, or there
                is no such mode.
            TypeError: at decoration, when the function is async or a generator.
        """
        sample = sample_name(template)
        if options.get("label") is None:
            options["label"] = template

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
                raise TypeError(f"locked() of a SyncLockManager wants an ordinary function, got {function!r}")
            name_of = name_filler(template, function)
            lock_in_mode(self.manager, sample, mode, options)  # options that cannot work fail here, too

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
                lock = lock_in_mode(self.manager, name_of(*args, **kwargs), mode, options)
                with SyncLock(lock, self):
                    return function(*args, **kwargs)

            return under_lock

        return decorate

    # -- looking and administering: as the methods of `LockManager` ----------------------------

    def inspect(self, name: str) -> tuple[NodeInspection, ...]:
        """Return what each node holds under `name`: whether, for how long, by which holder, whether ours."""
        return self._call(self.manager.inspect, name)

    def force_release(self, name: str) -> tuple[NodeInspection, ...]:
        """Delete the key of `name` on every node, whichever client holds it, and return what was there."""
        return self._call(self.manager.force_release, name)

    def survey(self, *names: str, limit: int = 1000) -> Survey:
        """Look at the locks `names`, or at every lock under the prefix; as `LockManager.survey`."""
        return self._call(functools.partial(self.manager.survey, *names, limit=limit))

    def init(self, *, force: bool = False) -> tuple[NodeInitialisation, ...]:
        """State that no lock can be alive under the prefix; as `LockManager.init`."""
        return self._call(functools.partial(self.manager.init, force=force))

    def diagnose(self) -> tuple[Finding, ...]:
        """Look for what silently voids a quorum, and say what to do about it; as `LockManager.diagnose`."""
        return self._call(self.manager.diagnose)

    def statistics(self) -> ManagerStatistics:
        """Return nodes, held leases, waiters and counters as they are now.  No I/O."""
        return self.manager.statistics()

    @property
    def available(self) -> bool:
        """Whether a majority of the nodes may vote now, as far as is known without asking them."""
        return self.manager.available

    @property
    def unavailable_for(self) -> float:
        """Seconds until a majority may vote; 0: now, `math.inf`: unknown.  No I/O."""
        return self.manager.unavailable_for

    def _call(self, function: Callable[..., Coroutine[Any, Any, R]], *args: object) -> R:
        result: R = self.submit(function, *args).result()
        return result

    # -- its thread ----------------------------------------------------------------------------

    def close(self) -> None:
        """Release every lease and end the thread; idempotent.

        Waits for the blocks of other threads, at most until their deadline; they end in `LockLostError`.
        """
        if not self.inherited:
            with suppress(ManagerClosedError):
                self.submit(self.manager.aclose).result()
            with self._gate, suppress(RuntimeError):  # another thread has stopped it
                self._portal.call(self._portal.stop)
            self._thread.join()

    def __enter__(self) -> SyncLockManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the thread is its parent's."""
        return self._started_in not in (None, os.getpid())

    async def _run(self) -> None:
        async with BlockingPortal() as self._portal:
            self._started.set()
            await self._portal.sleep_until_stopped()

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Run a function in the thread of the loop; locks and leases do.  Raises when that cannot be."""
        if self.inherited:
            raise RuntimeError("this SyncLockManager was used before a fork: make one per process, after it")
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 (asyncio exports it)
            raise RuntimeError("a SyncLockManager would block this event loop: use a LockManager here")
        with self._gate:  # a loop that ends after it was seen to run would never answer
            if self._thread.ident is None:
                self._started_in = os.getpid()
                self._thread.start()
            self._started.wait()
            try:
                return self._portal.start_task_soon(function, *args)
            except RuntimeError as error:
                raise ManagerClosedError("the lock manager is closed") from error
