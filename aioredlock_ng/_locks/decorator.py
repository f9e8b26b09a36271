"""``@manager.locked("report:{customer_id}")``: an async function that runs under a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .._settings.options import LockedOptions
from .lock import Lock
from .template import name_filler, sample_name

P = ParamSpec("P")
R = TypeVar("R")


def lock_maker(
    lock_of: Callable[..., Lock], template: str, options: LockedOptions
) -> Callable[[Callable[..., object]], Callable[..., Lock]]:
    """Return a function that returns, for a decorated function, one that describes the lock of a call.

    `lock_of` takes a name and the options.

    Raises:
        ValueError, TypeError: at decoration, too, as `name_filler` and `lock_of`.
    """
    sample = sample_name(template)
    if options.get("label") is None:
        options["label"] = template

    def of(function: Callable[..., object]) -> Callable[..., Lock]:
        name_of = name_filler(template, function)
        lock_of(sample, **options)  # options that cannot work fail here, too
        return lambda *args, **kwargs: lock_of(name_of(*args, **kwargs), **options)

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
