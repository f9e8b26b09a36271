"""``@manager.locked("report:{customer_id}")``: an async function under a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ._lock import Lock
from ._template import name_filler, sample_name

P = ParamSpec("P")
R = TypeVar("R")


def locked(
    template: str, make: Callable[[str], Lock[int | None]]
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Return a decorator; `make` turns the filled template into a lock."""
    sample = sample_name(template)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() wants an async function, got {function!r}")
        name_of = name_filler(template, function)
        make(sample)  # options that cannot work fail here, too

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            async with make(name_of(*args, **kwargs)):
                return await function(*args, **kwargs)

        return under_lock

    return decorate
