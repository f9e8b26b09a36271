"""The same locks for threads, without ``await``: `SyncLockManager` keeps a loop in a thread of its own.

    with SyncLockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        with manager.lock("job", ttl=30, blocking_timeout=5) as lease:
            lease.check()

A thread cannot be cancelled: a loss raises at `SyncLease.check`, to be called before each write, and at the
end of the block.  Threads may share a manager, but not those that run an event loop, unless it calls the
cells of a notebook.  With ``reentrant=True`` code may go again into a lock that it is inside of by ``with``;
without that it would wait for itself, and gets `WouldDeadlockError`.  Code is inside of a block in the thread
and the context that have entered it.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, ParamSpec, TypeVar, Unpack, final, overload
from weakref import WeakSet

from .. import (
    Finding,
    LockManager,
    LockOptions,
    LockTakenError,
    ManagerClosedError,
    ManagerStatistics,
    NodeInitialisation,
    NodeInspection,
    QueueInspection,
    ReadWriteLockOptions,
    SemaphoreOptions,
    Survey,
)
from .._locks import ASYNC_WITH, Uncopied, instead
from .._locks.decorator import lock_maker
from .._settings.options import ElectionOptions, LockedOptions, ManagerOptions, Options, Renamed, shows
from .._settings.specs import NodeSpec
from ..events import Hooks
from ._courier import Courier
from ._election import SyncCampaign, SyncElection, SyncLeadership
from ._entries import idle, inside
from ._lock import SyncLease, SyncLock, SyncReadWriteLock, collected
from ._thread import Call, LoopThread

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
T = TypeVar("T")

_LATER: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
"""Functions whose code does not run when they are called."""

EXIT_LIMIT: Final = 0.5
"""Seconds for which the interpreter's end waits for the nodes' answers to the releases, and for hooks."""

_MANAGERS: Final[WeakSet[SyncLockManager]] = WeakSet()


@atexit.register
def _end_all() -> None:
    """Release what no other thread is inside of, when the interpreter ends; afterwards no call waits.

    A suspended generator, say, leaves its block when the loop's thread stands still already.
    """
    closing: list[tuple[Call, Courier]] = []
    for manager in list(_MANAGERS):
        with suppress(ManagerClosedError, RuntimeError):
            if manager._thread.runs:  # noqa: SLF001
                call = manager._thread.submit(manager.manager._aclose_for, idle())  # noqa: SLF001
                closing.append((call, manager._thread.courier))  # noqa: SLF001
    LoopThread.ended = True
    ends = time.monotonic() + EXIT_LIMIT
    for call, courier in closing:
        call.over.wait(max(0.0, ends - time.monotonic()))
        courier.end()
        courier.wait(max(0.0, ends - time.monotonic()))


def _refuse_cancel(options: Mapping[str, Any]) -> None:
    if options.get("on_lost") not in (None, "raise"):
        raise TypeError(
            f"on_lost={options['on_lost']!r}: a thread cannot be cancelled; leave on_lost out: a loss "
            "raises LockLostError at lease.check() and at the end of the block"
        )


@final
@instead("`with SyncLockManager(…) as manager:`; in an event loop use a `LockManager`", *ASYNC_WITH)
class SyncLockManager(Renamed, Uncopied):
    """A `LockManager` for threads, with the same arguments; its thread starts at the first use.

    Hooks, and the handlers of its log lines, are called by a further thread, soon after the event.  A call
    whose time is over returns half a second later at most, even where other code of the user's blocks the
    manager's thread, in `QuorumUnavailableError`; what it has asked for is undone when that goes on.

    Close it: one that is dropped keeps its thread and its connections until the process ends.  Of several
    ``with`` blocks, also of several threads, the one that is left last closes it.
    `manager` is the one that it runs.
    """

    @shows(ManagerOptions, LockManager.__init__, "on_lost")
    def __init__(self, nodes: Iterable[NodeSpec], **options: Unpack[ManagerOptions]) -> None:
        self._run_over(functools.partial(LockManager, nodes), options)

    @classmethod
    @shows(ManagerOptions, LockManager.__init__, "on_lost")
    def from_env(cls, **options: Unpack[ManagerOptions]) -> SyncLockManager:
        """Make a manager over the nodes that `REDLOCK_URLS` lists; as `LockManager.from_env`."""
        manager = cls.__new__(cls)
        manager._run_over(LockManager.from_env, options)  # noqa: SLF001 (one of this very class)
        return manager

    def _run_over(self, make: Callable[..., LockManager], options: ManagerOptions) -> None:
        _refuse_cancel(options)
        options["on_lost"] = "raise"
        hooks = options.pop("hooks", ())
        self._thread = LoopThread()
        self._blocks: list[None] = []  # one for each that is entered: a list, since its methods are atomic
        if isinstance(hooks, Iterable) and not isinstance(hooks, Hooks):  # else `make` says what is wrong
            hooks = (self._thread.losses, *hooks)
        self.manager: LockManager = make(hooks=hooks, **options)
        life, thread = self.manager._life, self._thread  # noqa: SLF001 (it is the manager's only user)
        life.hooks.hand_over(thread.courier.deliver, but=thread.losses)
        thread.node_timeout = life.options.node_timeout
        thread.connect_timeout = life.options.connect_timeout
        _MANAGERS.add(self)

    def __repr__(self) -> str:
        return f"<Sync{repr(self.manager)[1:]}"

    @shows(LockOptions, Options.request, "on_lost")
    def lock(self, *names: str, **options: Unpack[LockOptions]) -> SyncLock:
        """Describe a lock; the options are those of `LockManager.lock`, but a loss only raises."""
        _refuse_cancel(options)
        return SyncLock(self.manager.lock(*names, **options), self._thread)

    @shows(ReadWriteLockOptions, Options.request, "on_lost")
    def rwlock(self, *names: str, **options: Unpack[ReadWriteLockOptions]) -> SyncReadWriteLock:
        """Describe a read-write lock; the options are those of `LockManager.rwlock`; a loss only raises."""
        _refuse_cancel(options)
        return SyncReadWriteLock(self.manager.rwlock(*names, **options), self._thread)

    @shows(SemaphoreOptions, Options.request, "on_lost")
    def semaphore(self, name: str, *, permits: int, **options: Unpack[SemaphoreOptions]) -> SyncLock:
        """Describe a counting semaphore; arguments and errors are those of `LockManager.semaphore`."""
        _refuse_cancel(options)
        return SyncLock(self.manager.semaphore(name, permits=permits, **options), self._thread)

    @shows(SemaphoreOptions, Options.request, "on_lost")
    def fair_semaphore(
        self, name: str, *, permits: int, weight: int = 1, **options: Unpack[SemaphoreOptions]
    ) -> AbstractContextManager[tuple[SyncLease, ...]]:
        """Return a block that holds several permits; as `LockManager.fair_semaphore`; a loss only raises."""
        _refuse_cancel(options)
        parts = self.manager._behind_door(name, permits, weight, options)  # noqa: SLF001
        return collected(*parts, weight, self._thread)

    @shows(ElectionOptions, Options.request, "on_lost")
    def election(self, name: str, **options: Unpack[ElectionOptions]) -> SyncElection:
        """Describe the election of a leader; options and errors are those of `LockManager.election`."""
        _refuse_cancel(options)
        return SyncElection(self.manager.election(name, **options), self._thread)

    @overload
    def locked(
        self, *templates: str, **options: Unpack[LockedOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def locked(
        self, *templates: str, otherwise: T, **options: Unpack[LockedOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | T]]: ...

    @shows(LockedOptions, LockManager.locked, "on_lost")
    def locked(
        self, *templates: str, otherwise: Any = LockTakenError, **options: Unpack[LockedOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, Any]]:
        """Run a function under the lock that `templates` name; as `LockManager.locked`.

        A loss raises `LockLostError` when the function has returned.

        Raises:
            ValueError: at decoration, when a field of a template is no parameter of the function, there is
                no such mode, or the lock waits without a limit and there is an `otherwise`.
            TypeError: at decoration, when the function is async or a generator, or the lock has no such
                option.
        """
        _refuse_cancel(options)
        maker = lock_maker(self.manager._lock_of, templates, otherwise, options)  # noqa: SLF001

        def decorate(function: Callable[P, R]) -> Callable[P, Any]:
            if any(later(called) for later in _LATER for called in (function, type(function).__call__)):
                raise TypeError(f"locked() of a SyncLockManager needs an ordinary function, got {function!r}")
            lock_for = maker(function)

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> Any:
                lock, entered = SyncLock(lock_for(*args, **kwargs), self._thread), False
                try:
                    with lock:
                        entered = True
                        return function(*args, **kwargs)
                except LockTakenError:
                    if entered or otherwise is LockTakenError:  # as in the decorator of async functions
                        raise
                    return otherwise

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
        """Whether a majority of the nodes may vote now; as `LockManager.available`, it starts the manager."""
        return self.unavailable_for == 0

    @property
    def unavailable_for(self) -> float:
        """Seconds until a majority may vote; 0: now, `math.inf`: unknown.  No I/O.

        As `LockManager.unavailable_for`, it starts a manager that was neither used nor closed.
        """
        life = self.manager._life  # noqa: SLF001 (the public property would start it in this thread's loop)
        if life.unused:
            self._thread.begin(self.manager.start)
        return life.unavailable_for

    # -- its thread ----------------------------------------------------------------------------

    def close(self) -> None:
        """Release every lease and end the thread; idempotent.

        Waits for the blocks of other threads and contexts, at most until their deadline; they end in
        `LockLostError`.  Leases of blocks that the calling code is inside of are released at once, as are
        those from `SyncLock.acquire`.  So a signal handler may close it.
        Hooks and log handlers that have calls left get a second.  A loop that stands still for 3 seconds,
        as when other code of the user's blocks it, is not waited for: it ends later.
        """
        if not self._thread.inherited:
            self._thread.stop(self.manager._aclose_for, inside())  # noqa: SLF001

    def __enter__(self) -> SyncLockManager:
        """Start, as `LockManager.start` does."""
        self._blocks.append(None)
        try:
            self._thread.call(self.manager.start)
        except BaseException:  # without an enter there is no exit that would close it
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._blocks.pop()
        if not self._blocks:  # the last one of all threads
            self.close()
