"""aiohttp: a lock manager that lives with the application, and handlers that run under a lock.

    app = web.Application()
    setup(app, ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

    @routes.post("/orders/{order_id}/pay")
    @locked("order:{order_id}", ttl=15, blocking_timeout=2)
    async def pay(request: web.Request) -> web.Response:
        request[LEASE].check()

One middleware, which `setup` installs, turns the lock errors of every handler into answers, whether
they come from `locked` or from an ``async with`` of the handler's own: 409 while another request holds
the lock, 503 without a quorum and when the lock was lost, each with ``Retry-After``; and 503 to a
`ConfigurationError`, such as that of nodes that cannot be one quorum.  The body has the reason as ``detail``.
It raises them as aiohttp's own `HTTPException`, so middlewares that roll back on an exception do.  Once the
response has begun, no status can be sent any more: a WebSocket is closed with 1013 ("try again later"), any
other connection is reset, so that no client takes what it got for the whole body; the error goes on.
"""

from __future__ import annotations

import functools
import inspect
import json
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar, Unpack, final
from weakref import WeakSet

from aiohttp import WSCloseCode, web
from aiohttp.typedefs import Handler

from .. import ConfigurationError, Lease, Lock, LockError, LockManager, LockOptions, Mode
from .._decorator import Sort, sort_of
from .._template import template_fields
from ._http import Refusal, check_options, check_status, label_of, lock_or_none, log_refusal, refusal

__all__ = ["LEASE", "MANAGER", "locked", "setup"]

P = ParamSpec("P")
R = TypeVar("R", bound=web.StreamResponse)

KeyFunction: TypeAlias = Callable[[web.Request], str | Awaitable[str]]
"""Makes a lock's name from a request; sync or async."""

MANAGER: Final[web.AppKey[LockManager]] = web.AppKey("MANAGER", LockManager)
"""The lock manager: ``app[MANAGER]``, and in handlers, also of sub-apps, ``request.config_dict[MANAGER]``."""

if TYPE_CHECKING or hasattr(web, "RequestKey"):
    LEASE: Final[web.RequestKey[Lease]] = web.RequestKey("LEASE", Lease)
    """The lease of a `locked` handler, ``request[LEASE]``; under several locks the innermost."""
    _TAKEN: Final = web.RequestKey("_TAKEN", int)
    _WEBSOCKET: Final = web.RequestKey("_WEBSOCKET", web.WebSocketResponse)
else:  # before aiohttp 3.14, where a request takes any key
    LEASE = web.AppKey("LEASE", Lease)
    _TAKEN = web.AppKey("_TAKEN", int)
    _WEBSOCKET = web.AppKey("_WEBSOCKET", web.WebSocketResponse)

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: closing sends a reset, which no client takes for the end of a body."""

_locked: WeakSet[Callable[..., object]] = WeakSet()
"""The handlers that `locked` made."""


# -- the application -----------------------------------------------------------------------------------


def setup(
    app: web.Application, nodes_or_manager: Iterable[Any] | LockManager | None = None, **options: Any
) -> None:
    """Give an application a lock manager; call it before the application starts.

    Over nodes, the manager is made here, started and closed with the application.  A manager that you
    made is started with the application, and yours to close: others may use it as well.

    Sub-apps find their parent's manager; one that is set up on its own uses its own.  Middlewares that
    the application has by now see the answers like any other `HTTPException`; those that are added later
    run inside, may use locks themselves, and see lock errors.

    Args:
        app: not started, and if it is a sub-app, not added to its parent yet.
        nodes_or_manager: what `LockManager` takes as nodes; a manager; or None for the nodes that the
            environment variable ``REDLOCK_URLS`` lists.
        **options: those of `LockManager`; none with a manager.

    Raises:
        RuntimeError: the application has a manager, or cannot be changed any more.
        TypeError, ValueError: bad nodes or options, or options for a manager that is made already.
    """
    if MANAGER in app:
        raise RuntimeError("this application has a lock manager: call setup() once")
    if app.pre_frozen:
        raise RuntimeError("call setup() before the application starts or is added to another one")
    ours = not isinstance(nodes_or_manager, LockManager)
    if isinstance(nodes_or_manager, LockManager):
        if options:
            raise TypeError(f"options are for a manager that setup() makes, got {', '.join(options)}")
        manager = nodes_or_manager
    elif nodes_or_manager is None:
        manager = LockManager.from_env(**options)
    else:
        manager = LockManager(nodes_or_manager, **options)

    async def live(app: web.Application) -> AsyncIterator[None]:
        _check_routes(app)
        try:
            await manager.start()
            yield
        finally:
            if ours:
                await manager.aclose()

    app[MANAGER] = manager
    app.cleanup_ctx.append(live)
    app.on_response_prepare.append(_note_websocket)
    app.middlewares.append(_answer)


def _check_routes(app: web.Application) -> None:
    """Refuse to run a handler without the lock that its author believes it has.

    With ``@locked`` above ``@routes.post(…)``, the route has the bare function, while the function's name
    stands for the locked one, which is never called.
    """
    for route in app.router.routes():
        handler = route.handler
        module = sys.modules.get(handler.__module__)
        named: Any = getattr(module, getattr(handler, "__qualname__", ""), None)
        if handler not in _locked and named in _locked and inspect.unwrap(named) is inspect.unwrap(handler):
            raise RuntimeError(
                f"{route.method} {_path(route)} runs {handler.__qualname__} without its lock: "
                "@locked belongs below the route's decorator"
            )


def _path(route: web.AbstractRoute) -> str:
    return "*" if route.resource is None else route.resource.canonical


async def _note_websocket(request: web.Request, response: web.StreamResponse) -> None:
    if isinstance(response, web.WebSocketResponse):
        request[_WEBSOCKET] = response


# -- the answers ---------------------------------------------------------------------------------------


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer for the lock errors that a handler ends in."""
    try:
        return await handler(request)
    except (LockError, ConfigurationError) as error:
        answer = refusal(error, taken=request.get(_TAKEN, HTTPStatus.CONFLICT))
        if answer is None:
            raise
        log_refusal(f"{request.method} {_path(request.match_info.route)}", error)
        if request.writer.output_size == 0:
            raise _HTTPRefused(answer) from error
        websocket = request.get(_WEBSOCKET)
        if websocket is None:
            _reset(request)
        else:
            await websocket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=answer.detail.encode())
        raise


@final
class _HTTPRefused(web.HTTPError):
    """A refusal as aiohttp raises its answers; the body is that of FastAPI's errors."""

    def __init__(self, answer: Refusal) -> None:
        self.status_code = answer.status
        super().__init__(
            text=json.dumps({"detail": answer.detail}),
            content_type="application/json",
            headers=answer.headers,
        )


def _reset(request: web.Request) -> None:
    """End the connection so that the client notices, even where a body ends with its connection."""
    if request.transport is None:
        return
    connection = request.transport.get_extra_info("socket")
    with suppress(OSError, AttributeError):  # a transport that is no socket is just closed
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    request.transport.abort()


# -- handlers ------------------------------------------------------------------------------------------


def locked(
    key: str | KeyFunction,
    *,
    status_code: int = HTTPStatus.CONFLICT,
    mode: Mode | None = None,
    permits: int | None = None,
    **options: Unpack[LockOptions],
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Run a handler under a lock: a function, a method, or a method of a `web.View`.

    The lease is in ``request[LEASE]``.  The lock is released before the response that the handler returns
    is sent; what a handler streams itself, or exchanges over a WebSocket, is under the lock.

    What the template gets is the text of the path: ``/orders/42`` and ``/orders/042`` are two locks.
    Either route by ``{order_id:[1-9][0-9]*}``, or make the name with a function:
    ``locked(lambda request: f"order:{int(request.match_info['order_id'])}")``.  A function may also be
    async and read the body, which the handler can read again.

    Args:
        key: the lock's name: a template, filled from ``request.match_info``, or a function of the request.
        status_code: the answer while another request holds the lock.
        mode: ``"read"`` or ``"write"``: the `LockManager.rwlock` of that name, held so, without `at_least`;
            None: a mutex.
        permits: so many requests hold the lock at once: the `LockManager.semaphore` of that name, which has
            neither `at_least` nor `reentrant`.
        **options: those of `LockManager.lock`.  Without a `blocking_timeout`, requests wait their turn as
            long as it takes.  `label` is the template, or the function's name, unless given.

    Raises:
        TypeError, ValueError: at decoration: what could not work at any request.
    """
    check_status(status_code)
    name_of = _filling(key) if isinstance(key, str) else _calling(key)
    if options.get("label") is None:
        options["label"] = label_of(key)
    sort = sort_of(mode, permits)
    check_options(options, sort)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"locked() wants an async handler, got {function!r}")

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            request = _request_in((*args, *kwargs.values()))
            lock = _lock(request, await name_of(request), sort, options)
            request[_TAKEN] = status_code
            async with lock as lease:
                request[_TAKEN] = HTTPStatus.CONFLICT  # locks of the handler's own have nothing to do with it
                request[LEASE] = lease
                return await function(*args, **kwargs)

        _locked.add(under_lock)
        return under_lock

    return decorate


def _filling(template: str) -> Callable[[web.Request], Awaitable[str]]:
    """Return what fills a template; fail with one that no path could fill."""
    template_fields(template)  # raises for a malformed one
    try:
        sample = template.format_map(_AnyPath())
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"template {template!r}: paths have texts only: {error}") from error
    check_options({}, name=sample)

    async def fill(request: web.Request) -> str:
        try:
            return template.format_map(request.match_info)
        except KeyError as error:
            raise RuntimeError(
                f"template {template!r}: {{{error.args[0]}}} is not in the route "
                f"{request.method} {_path(request.match_info.route)}"
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
        raise TypeError(f"locked() wants a template or a function of the request, got {key!r}")

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


def _lock(request: web.Request, name: str, sort: Sort, options: LockOptions) -> Lock:
    manager = request.config_dict.get(MANAGER)
    if manager is None:
        raise RuntimeError(
            "this application has no lock manager: call aioredlock_ng.contrib.aiohttp.setup(app, nodes) "
            "before it starts"
        )
    lock = lock_or_none(manager, name, sort, options)
    if lock is None:
        raise _HTTPRefused(Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "no lock can have this name", None))
    return lock
