"""The same locks for threads, without ``await``: `SyncLockManager` keeps a loop in a thread of its own.

    with SyncLockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        with manager.lock("job", ttl=30, blocking_timeout=5) as lease:
            lease.check()

A thread cannot be cancelled: a loss raises at `SyncLease.check`, to be called before each write, and at the
end of the block.  Threads may share a manager, but not those that run an event loop.  With
``reentrant=True`` a thread may go again into a lock that it is inside of by ``with``; without that it would
wait for itself, and gets `WouldDeadlockError`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, Unpack, final

from . import (
    ExtensionPolicy,
    Finding,
    LockManager,
    LockOptions,
    ManagerClosedError,
    ManagerStatistics,
    Mode,
    NodeInitialisation,
    NodeInspection,
    QueueInspection,
    ReadWriteLockOptions,
    SemaphoreOptions,
    Survey,
)
from ._decorator import lock_of, sort_of
from ._sync.election import SyncCampaign, SyncElection, SyncLeadership
from ._sync.lock import SyncLease, SyncLock, SyncReadWriteLock
from ._sync.thread import LoopThread
from ._template import name_filler, sample_name
from .events import Hooks

__all__ = [
    "SyncCampaign",
    "SyncElection",
    "SyncLeadership",
    "SyncLease",
    "SyncLock",
    "SyncLockManager",
    "SyncReadWriteLock",
]

P = ParamSpec("P")
R = TypeVar("R")


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
        self._thread = LoopThread()
        if isinstance(hooks, Iterable) and not isinstance(hooks, Hooks):  # else `make` says what is wrong
            hooks = (self._thread.losses, *hooks)
        self.manager = make(on_lost="raise", hooks=hooks, **options)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.manager)[1:]}"

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> SyncLock:
        """Describe a lock; the options are those of `LockManager.lock`, but a loss only raises."""
        return SyncLock(self.manager.lock(*names, **options), self._thread)

    def rwlock(self, *names: str, **options: Unpack[ReadWriteLockOptions]) -> SyncReadWriteLock:
        """Describe a read-write lock; the options are those of `LockManager.rwlock`; a loss only raises."""
        return SyncReadWriteLock(self.manager.rwlock(*names, **options), self._thread)

    def semaphore(self, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> SyncLock:
        """Describe a counting semaphore; arguments and errors are those of `LockManager.semaphore`."""
        return SyncLock(self.manager.semaphore(name, permits, **options), self._thread)

    def election(
        self,
        name: str,
        *,
        ttl: float | timedelta | None = None,
        label: str | None = None,
        extension: ExtensionPolicy | None = None,
    ) -> SyncElection:
        """Describe the election of a leader; options and errors are those of `LockManager.election`."""
        election = self.manager.election(name, ttl=ttl, label=label, extension=extension)
        return SyncElection(election, self._thread)

    def locked(
        self,
        template: str,
        *,
        mode: Mode | None = None,
        permits: int | None = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function under the lock that `template` names; as `LockManager.locked`.

        A loss raises `LockLostError` when the function has returned.

        Raises:
            ValueError: at decoration, when a field of the template is no parameter of the function, there is
                no such mode, or it does not go with `at_least`.
            TypeError: at decoration, when the function is async or a generator.
        """
        sample, sort = sample_name(template), sort_of(mode, permits)
        if options.get("label") is None:
            options["label"] = template

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
                raise TypeError(f"locked() of a SyncLockManager wants an ordinary function, got {function!r}")
            name_of = name_filler(template, function)
            lock_of(self.manager, sample, sort, options)  # options that cannot work fail here, too

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
                lock = lock_of(self.manager, name_of(*args, **kwargs), sort, options)
                with SyncLock(lock, self._thread):
                    return function(*args, **kwargs)

            return under_lock

        return decorate

    # -- looking and administering: as the methods of `LockManager` ----------------------------

    def inspect(self, name: str) -> tuple[NodeInspection, ...]:
        """Return what each node holds under `name`: whether, for how long, by which holder, whether ours."""
        return self._thread.call(self.manager.inspect, name)

    def queue(self, name: str) -> QueueInspection:
        """Return the processes that wait in line for the fair lock `name`; as `LockManager.queue`."""
        return self._thread.call(self.manager.queue, name)

    def force_release(self, name: str) -> tuple[NodeInspection, ...]:
        """Delete the key of `name` on every node, whichever client holds it, and return what was there."""
        return self._thread.call(self.manager.force_release, name)

    def survey(self, *names: str, limit: int = 1000) -> Survey:
        """Look at the locks `names`, or at every lock under the prefix; as `LockManager.survey`."""
        return self._thread.call(functools.partial(self.manager.survey, *names, limit=limit))

    def init(self, *, force: bool = False) -> tuple[NodeInitialisation, ...]:
        """State that no lock can be alive under the prefix; as `LockManager.init`."""
        return self._thread.call(functools.partial(self.manager.init, force=force))

    def diagnose(self) -> tuple[Finding, ...]:
        """Look for what silently voids a quorum, and say what to do about it; as `LockManager.diagnose`."""
        return self._thread.call(self.manager.diagnose)

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

    # -- its thread ----------------------------------------------------------------------------

    def close(self) -> None:
        """Release every lease and end the thread; idempotent.

        Waits for the blocks of other threads, at most until their deadline; they end in `LockLostError`.
        """
        if not self._thread.inherited:
            with suppress(ManagerClosedError):
                self._thread.call(self.manager.aclose)
            self._thread.stop()

    def __enter__(self) -> SyncLockManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
