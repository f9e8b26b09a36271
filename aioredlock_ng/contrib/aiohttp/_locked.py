"""Handlers that run under a lock."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, ParamSpec, TypeAlias, TypeVar, Unpack, final

from aiohttp import web

from ... import Lock, LockManager
from ..._settings.options import LockedOptions, shows
from .._http import (
    GONE,
    LOCKED,
    LONGEST_WAIT,
    LOOK_AFTER,
    ClientGone,
    Refusal,
    check_at_end,
    complete,
    end_last,
    lock_or_none,
    taken_of,
    while_there,
)
from ._application import HELD, LEASE, MANAGER, TAKEN, HTTPRefused, locked_handlers, path_of

P = ParamSpec("P")
R = TypeVar("R", bound=web.StreamResponse)

KeyFunction: TypeAlias = Callable[[web.Request], str | Awaitable[str]]


@shows(LockedOptions, LockManager.locked, blocking_timeout=LONGEST_WAIT)
def locked(
    *keys: str | KeyFunction,
    status_code: int = HTTPStatus.CONFLICT,
    retry_after: float | None = None,
    **options: Unpack[LockedOptions],
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Run a handler under a lock: a function, a method, or a method of a `web.View`.

    The lease is in ``request[LEASE]``.  The lock is released when the middlewares of the application have
    ended, so that one that commits does it under the lock, and before the response is sent; what a handler
    streams itself, or exchanges over a WebSocket, is under the lock.  When a handler ends in an error that
    is no answer of aiohttp's, or is cancelled, the lock is released at once.  A request that has the lock
    already goes on under it, as when a middleware calls the handler again.

    A request whose client leaves while it waits gives up: with status 499, and without the handler.

    The template gets the text of the path: ``/orders/42`` and ``/orders/042`` are two locks.
    Either route by ``{order_id:[1-9][0-9]*}``, or make the name with a function:
    ``locked(lambda request: f"order:{int(request.match_info['order_id'])}")``.  A function may also be
    async and read the body, which the handler can read again.

    Args:
        keys: each makes a name: a template, filled from ``request.match_info``, or a function of the request.
            Several names are locked all or nothing.
        status_code: the answer while another request holds the lock.
        retry_after: seconds in its ``Retry-After``; by default those after which the lock is free unless its
            holder extends it, and 1 where all permits are taken.
        **options: those of `LockManager.lock`.
            `blocking_timeout`: seconds that a request waits, 20 by default; None: as long as it takes, also
            when the server is to stop.
            `label`: the template, or the function's name, unless given.
            `mode`: ``"read"`` or ``"write"``: the `LockManager.rwlock` of that name, held so, without
            `at_least` or `fair`; None: a mutex.
            `permits`: the number of requests that hold the lock at once: the `LockManager.semaphore` of
            that name, which has neither `at_least`, `reentrant` nor `fair`.

    Raises:
        TypeError, ValueError: at decoration: what could not work at any request.
    """
    taken = taken_of(status_code, retry_after, options.get("permits"))
    complete(keys, options)
    names_of = [_filling(key) if isinstance(key, str) else _calling(key) for key in keys]

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() needs an async handler, got {function!r}")

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            request = _request_in((*args, *kwargs.values()))
            names = [await name_of(request) for name_of in names_of]
            # A middleware whose commit failed may call the handler again: the request still has its lock.
            again = LEASE in request and options.get("permits") is None
            lock = _lock(request, names, {**options, "reentrant": True} if again else options)
            request[TAKEN] = taken
            async with AsyncExitStack() as ended, AsyncExitStack() as held:
                try:
                    async with while_there(functools.partial(_until_left, request)):
                        lease = await held.enter_async_context(lock)
                except ClientGone:
                    raise HTTPRefused(Refusal(GONE, "the client has left", None)) from None
                request[TAKEN] = LOCKED  # locks of the handler's own have nothing to do with it
                request[LEASE] = lease
                try:
                    answer = await function(*args, **kwargs)
                    await check_at_end(lease)
                except web.HTTPException:  # an answer, too
                    end_last(held, request.get(HELD, ended))
                    raise
                end_last(held, request.get(HELD, ended))
                return answer

        locked_handlers.add(under_lock)
        return under_lock

    return decorate


async def _until_left(request: web.Request) -> None:
    """Return when the client of a request has left."""
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_AFTER)  # there is no event of it


def _filling(template: str) -> Callable[[web.Request], Awaitable[str]]:
    """Return what fills a template; fail with one that no path could fill."""
    try:
        template.format_map(_AnyPath())
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"template {template!r}: path parameters are strings: {error}") from error

    async def fill(request: web.Request) -> str:
        try:
            return template.format_map(request.match_info)
        except KeyError as error:
            raise RuntimeError(
                f"template {template!r}: {{{error.args[0]}}} is not in the route "
                f"{request.method} {path_of(request.match_info.route)}"
            ) from error

    return fill


@final
class _AnyPath(dict[str, str]):
    """A path in which every part is there, for trying a template."""

    def __missing__(self, key: str) -> str:
        return "any"


def _calling(key: KeyFunction) -> Callable[[web.Request], Awaitable[str]]:
    """Return what calls a user's function."""
    if not callable(key):
        raise TypeError(f"locked() needs a template or a function of the request, got {key!r}")

    async def call(request: web.Request) -> str:
        name = key(request)
        return await name if inspect.isawaitable(name) else name

    return call


def _request_in(arguments: Iterable[object]) -> web.Request:
    """Find the request among the arguments of a handler."""
    for argument in arguments:
        if isinstance(argument, web.Request):
            return argument
        if isinstance(argument, web.View):
            return argument.request
    raise TypeError("a locked() handler was called without a request")


def _lock(request: web.Request, names: Iterable[str], options: LockedOptions) -> Lock:
    manager = request.config_dict.get(MANAGER)
    if manager is None:
        raise RuntimeError(
            "this application has no lock manager: call aioredlock_ng.contrib.aiohttp.setup(app, nodes) "
            "before it starts"
        )
    lock = lock_or_none(manager, names, options)
    if lock is None:
        raise HTTPRefused(Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "no lock can have this name", None))
    return lock
