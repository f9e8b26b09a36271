"""``@manager.locked("report:{customer_id}")``: an async function that runs under a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, get_args

from .._kinds.kind import Mode
from .._settings.options import LockOptions, ReadWriteLockOptions, SemaphoreOptions
from .lock import Lock
from .rwlock import ReadWriteLock
from .template import name_filler, sample_name

P = ParamSpec("P")
R = TypeVar("R")


class Manager(Protocol):
    """Describes locks: a `LockManager`."""

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Describe a mutex."""

    def rwlock(self, *names: str, **options: Unpack[ReadWriteLockOptions]) -> ReadWriteLock:
        """Describe a read-write lock."""

    def semaphore(self, name: str, *, permits: int, **options: Unpack[SemaphoreOptions]) -> Lock:
        """Describe a semaphore."""


Sort: TypeAlias = Mode | int | None
"""The sort of lock that a decorator asks for: a mode of a read-write lock, permits, or None for a mutex."""


_OF_LOCKS: Final = ("at_least", "reentrant", "fair")
"""Options that not every kind has, all of them off by default."""


def sort_of(mode: Mode | None, permits: int | None) -> Sort:
    """Return the sort of lock that these two options mean.

    Raises:
        ValueError: both are given.
    """
    if permits is None:
        return mode
    if mode is not None:
        raise ValueError(f"a semaphore has no mode, got mode={mode!r} and permits={permits!r}")
    return permits


def lock_of(manager: Manager, name: str, mode: Sort, options: LockOptions) -> Lock:
    """Describe the lock that a decorator asks for.

    Raises:
        ValueError: there is no such mode.
        ValueError, TypeError: as `LockManager.lock`, `LockManager.rwlock` or `LockManager.semaphore`.
    """
    if mode is None:
        return manager.lock(name, **options)
    # An option that only other kinds have may be there, switched off.
    left: Any = {name: value for name, value in options.items() if value or name not in _OF_LOCKS}
    if isinstance(mode, int | float):
        return manager.semaphore(name, permits=mode, **left)
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be 'read', 'write' or None, got {mode!r}")
    lock = manager.rwlock(name, **left)
    return lock.read() if mode == "read" else lock.write()


def lock_maker(
    manager: Manager, template: str, mode: Mode | None, permits: int | None, options: LockOptions
) -> Callable[[Callable[..., object]], Callable[..., Lock]]:
    """Return a function that returns, for a decorated function, one that describes the lock of a call.

    Raises:
        ValueError, TypeError: at decoration, too, as `name_filler` and `lock_of`.
    """
    sample, sort = sample_name(template), sort_of(mode, permits)
    if options.get("label") is None:
        options["label"] = template

    def of(function: Callable[..., object]) -> Callable[..., Lock]:
        name_of = name_filler(template, function)
        lock_of(manager, sample, sort, options)  # options that cannot work fail here, too
        return lambda *args, **kwargs: lock_of(manager, name_of(*args, **kwargs), sort, options)

    return of


def locked(
    maker: Callable[[Callable[..., object]], Callable[..., Lock]],
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Return a decorator of async functions; `maker` is a `lock_maker`."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() needs an async function, got {function!r}")
        lock_for = maker(function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            async with lock_for(*args, **kwargs):
                return await function(*args, **kwargs)

        return under_lock

    return decorate
