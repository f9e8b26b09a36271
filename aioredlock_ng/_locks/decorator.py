"""``@manager.locked("report:{customer_id}")``: an async function that runs under a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

from .._settings.options import LockedOptions
from ..errors import LockTakenError
from .lock import Lock
from .template import names_filler, sample_name

P = ParamSpec("P")
R = TypeVar("R")

AsyncFunction: TypeAlias = Callable[P, Coroutine[Any, Any, R]]


def lock_maker(
    lock_of: Callable[..., Lock], templates: Sequence[str], otherwise: object, options: LockedOptions
) -> Callable[[Callable[..., object]], Callable[..., Lock]]:
    """Return a function that returns, for a decorated function, one that describes the lock of a call.

    `lock_of` takes names and the options; `otherwise` is as of `LockManager.locked`.

    Raises:
        ValueError, TypeError: at decoration, too, as `names_filler` and `lock_of`.
    """
    samples = [sample_name(template) for template in templates]
    if options.get("label") is None:
        options["label"] = ", ".join(templates)

    def of(function: Callable[..., object]) -> Callable[..., Lock]:
        names_of = names_filler(templates, function)
        sample = lock_of(*samples, **options)  # options that cannot work fail here, too
        waits_for_ever = sample._request.blocking_timeout is None  # noqa: SLF001 (no part of its interface)
        if waits_for_ever and otherwise is not LockTakenError:
            raise ValueError(
                f"otherwise={otherwise!r} has no effect on a call that waits until it has the lock: "
                "give blocking=False, or a blocking_timeout"
            )
        return lambda *args, **kwargs: lock_of(*names_of(*args, **kwargs), **options)

    return of


def locked(
    maker: Callable[[Callable[..., object]], Callable[..., Lock]], otherwise: object
) -> Callable[[AsyncFunction[P, R]], AsyncFunction[P, Any]]:
    """Return a decorator of async functions; `maker` is a `lock_maker`."""

    def decorate(function: AsyncFunction[P, R]) -> AsyncFunction[P, Any]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() needs an async function, got {function!r}")
        lock_for = maker(function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> Any:
            lock, entered = lock_for(*args, **kwargs), False
            try:
                async with lock:
                    entered = True
                    return await function(*args, **kwargs)
            except LockTakenError:
                if entered or otherwise is LockTakenError:  # the error of another lock, or not to be skipped
                    raise
                return otherwise

        return under_lock

    return decorate
