"""``@manager.locked("report:{customer_id}")``: an async function under a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from ._lock import Lock
from ._template import template_fields

P = ParamSpec("P")
R = TypeVar("R")


_ANY_NAME: Final = "any"
"""Stands for the name that a call will fill in, when options are checked at decoration."""


def locked(
    template: str, make: Callable[[str], Lock]
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Return a decorator; `make` turns the filled template into a lock."""
    if not isinstance(template, str):
        raise TypeError(f'locked() wants a template, such as locked("report:{{id}}"), got {template!r}')
    fields = template_fields(template)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() wants an async function, got {function!r}")
        signature = inspect.signature(function)
        for field in fields:
            if field not in signature.parameters:
                raise ValueError(
                    f"template {template!r}: {field!r} is no parameter of {function.__qualname__}{signature}"
                )
        make(_ANY_NAME if fields else template.format())  # options that cannot work fail here, too

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            async with make(template.format_map(call.arguments)):
                return await function(*args, **kwargs)

        return under_lock

    return decorate
