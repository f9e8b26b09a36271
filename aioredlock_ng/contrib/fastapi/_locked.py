"""`locked`: a dependency that holds a lock while the endpoint runs."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias, Unpack, get_args

from fastapi import Depends, params
from starlette.requests import HTTPConnection

from ... import Lease, LockManager, LockTakenError
from ..._locks.template import template_fields
from ..._settings.options import LockedOptions, shows
from .._http import (
    LONGEST_WAIT,
    ClientGone,
    check_at_end,
    complete,
    end_last,
    lock_or_none,
    taken_of,
    while_there,
)
from ._answers import TAKEN
from ._requests import Ahead, ManagerDep, filled, gone, name_of_lock, route_of, tree, unusable

Key: TypeAlias = str | Callable[..., str | Awaitable[str] | Iterator[str] | AsyncIterator[str]]
"""The name of a lock: a template, or a dependency that returns it."""

Scope: TypeAlias = Literal["function", "request"]
"""Until when a lock is held: the end of the endpoint, or of the response and its background tasks."""


_STACKS: Final = {"function": "fastapi_function_astack", "request": "fastapi_inner_astack"}
"""By scope: where FastAPI keeps the exit stack of its dependencies in a request's scope."""

_GENERATORS: Final = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


@shows(LockedOptions, LockManager.locked, blocking_timeout=LONGEST_WAIT)
def locked(
    *keys: Key,
    scope: Scope = "request",
    status_code: int = HTTPStatus.CONFLICT,
    retry_after: float | None = None,
    **options: Unpack[LockedOptions],
) -> params.Depends:
    """Return a dependency that holds a lock while the endpoint runs; its value is the `Lease`.

    Declare it as a parameter, ``Annotated[Lease, locked("order:{order_id}")]``, after those that say who may
    call.  In ``dependencies=[locked(…)]`` of a route it comes before all parameters: there, write what signs
    users in before it.

    A template is filled with the values that the endpoint gets: validated, with aliases and defaults, so
    that ``/orders/42`` and ``/orders/042`` are one lock for ``order_id: int``.  A value that does not
    validate is FastAPI's own 422, without a lock; so is one that makes no usable name.  A part of the
    path that is not declared is taken as text.

    A request whose client leaves while it waits gives up: with status 499, and without the endpoint.

    When the lock is lost, an ``async def`` endpoint is cancelled.  A ``def`` endpoint runs in a thread,
    which nothing can stop: there the loss is only raised when it has returned.  In both cases the answer
    is 503, unless the response has begun (with ``scope="request"``): then a body in the making is stopped and
    the connection aborted.  Except that a body that a ``def`` endpoint has returned runs to its end, and that
    `BaseHTTPMiddleware` of newer Starlette ends a body that failed as if it were whole.

    Args:
        keys: each is a template over path and query parameters, or a dependency that returns the name and may
            have parameters of its own: a body, the user, ….  Several names are locked all or nothing.
        scope: when it is released, after all other dependencies of that scope, wherever they are declared.
            ``"request"``: after the response with its body, its background tasks, and sessions that commit
            behind a ``yield``.  ``"function"``: before the response is sent; a dependency that yields needs
            that scope, too, or a warning says that it ends without the lock.  A dependency that yields and
            takes the lease must have the scope of the lock.
        status_code: of the answer while another request holds the lock; it stands in the OpenAPI document of
            an app with `add_exception_handlers`.
        retry_after: seconds in its ``Retry-After``; by default those after which the lock is free unless its
            holder extends it, and 1 where all permits are taken.
        **options: those of `LockManager.lock`.
            `blocking_timeout`: seconds that a request waits, 20 by default; None: as long as it takes, also
            when the server is to stop.
            `label`: the template, or the dependency's name, unless given.
            `mode`: ``"read"`` or ``"write"``: the `LockManager.rwlock` of that name, held so, without
            `at_least` or `fair`; None: a mutex.
            `permits`: the number of requests that hold the lock at once: the `LockManager.semaphore` of
            that name, which has neither `at_least`, `reentrant` nor `fair`.

    Raises:
        TypeError, ValueError: at once: what could not work at any request.
    """
    if scope not in get_args(Scope):
        raise ValueError(f"scope must be one of {get_args(Scope)}, got {scope!r}")
    taken = taken_of(status_code, retry_after, options.get("permits"))
    for key in keys:
        if not isinstance(key, str) and not callable(key):
            raise TypeError(f"locked() needs a template or a dependency that returns the name, got {key!r}")
    called = complete(keys, options)
    names_of = _names_of(keys, called)

    async def lock(
        connection: HTTPConnection, manager: ManagerDep, names: Sequence[str] = Depends(names_of)
    ) -> Lease:
        described = lock_or_none(manager, names, _options_for(connection, scope, options))
        if described is None:
            raise unusable(connection)
        async with AsyncExitStack() as held:
            try:
                async with while_there(Ahead(connection).until_left):
                    lease = await held.enter_async_context(described)
            except LockTakenError as error:  # not one from the endpoint, which has a status of its own
                setattr(error, TAKEN, taken)
                raise
            except ClientGone:
                raise gone(connection) from None
            end_last(held, connection.scope[_STACKS[scope]])
            before_response = connection.scope[_STACKS["function"]]  # later no 503 could be sent
            before_response.push_async_exit(functools.partial(check_at_end, lease))
        return lease

    lock.__qualname__ = name_of_lock(called)  # by which `filled` knows it
    setattr(lock, TAKEN, taken)
    return params.Depends(lock, scope=scope)


def _names_of(keys: Sequence[Key], called: str) -> Callable[..., Awaitable[Sequence[str]]]:
    """Return a dependency that returns the names of a lock; it has a dependency for each."""

    async def names_of(**names: str) -> Sequence[str]:
        return tuple(names.values())

    each = [Depends(_filling(key, called) if isinstance(key, str) else key) for key in keys]
    names_of.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # which FastAPI reads
        [
            inspect.Parameter(f"name{number}", inspect.Parameter.KEYWORD_ONLY, default=one)
            for number, one in enumerate(each)
        ]
    )
    return names_of


def _filling(template: str, called: str) -> Callable[..., Awaitable[str]]:
    """Return a dependency that fills a template of the lock that is `called` so."""
    fields = template_fields(template)

    async def fill(connection: HTTPConnection) -> str:
        return filled(template, fields, called, connection)

    return fill


def _options_for(connection: HTTPConnection, scope: Scope, options: LockedOptions) -> LockedOptions:
    """Return the options of a lock that is held for this endpoint; tell of what it would not outlive."""
    endpoint, *dependencies = tree(route_of(connection).dependant)
    if scope == "function":
        change = f"use locked({options['label']!r}, scope='request')"
        if _is(endpoint.call, *_GENERATORS):
            raise RuntimeError(
                f"{endpoint.call!r} streams its response after a lock of scope 'function' is released: "
                f"{change}"
            )
        for one in dependencies:
            if one.scope != "function" and _is(one.call, *_GENERATORS):
                # Once for each of them: what it does behind its yield may be harmless.
                warnings.warn(
                    f"{endpoint.call!r}: {one.call!r} ends after the lock of scope 'function' is released, "
                    f"and what it commits then is not under the lock: give it scope='function', or {change}",
                    RuntimeWarning,
                    stacklevel=1,
                )
    if _runs_in_thread(endpoint.call):
        return {**options, "on_lost": "raise"}  # cancelled, the request would leave its thread alone
    return options


def _runs_in_thread(endpoint: Any) -> bool:
    """Say whether FastAPI runs an endpoint in a thread, from beginning to end.

    What yields runs step by step: it can be stopped in between.
    """
    return not _is(endpoint, inspect.iscoroutinefunction, *_GENERATORS)


def _is(function: Any, *kinds: Callable[[Any], bool]) -> bool:
    """Say whether a callable, what it wraps, or its ``__call__``, is of one of the kinds."""
    while isinstance(function, functools.partial):
        function = function.func
    functions = (function, inspect.unwrap(function), getattr(function, "__call__", None))  # noqa: B004 (likewise)
    return any(kind(one) for kind in kinds for one in functions)
