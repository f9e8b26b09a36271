"""The manager that lives with the application, what requests keep, and lock errors as HTTP answers."""

from __future__ import annotations

import inspect
import json
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

from aiohttp import WSCloseCode, web
from aiohttp.typedefs import Handler

from ... import ConfigurationError, Lease, LockError, LockManager
from .._http import LOCKED, Refusal, Taken, log_refusal, refusal

MANAGER: Final[web.AppKey[LockManager]] = web.AppKey("MANAGER", LockManager)
"""The lock manager: ``app[MANAGER]``, and in handlers, also of sub-apps, ``request.config_dict[MANAGER]``."""

if TYPE_CHECKING or hasattr(web, "RequestKey"):
    LEASE: Final[web.RequestKey[Lease]] = web.RequestKey("LEASE", Lease)
    """The lease of a `locked` handler, ``request[LEASE]``; under several locks the innermost."""
    TAKEN: Final = web.RequestKey("TAKEN", Taken)
    WEBSOCKET: Final = web.RequestKey("WEBSOCKET", web.WebSocketResponse)
    HELD: Final = web.RequestKey("HELD", AsyncExitStack)
else:  # before aiohttp 3.14, where a request takes any key
    LEASE = web.AppKey("LEASE", Lease)
    TAKEN = web.AppKey("TAKEN", Taken)
    WEBSOCKET = web.AppKey("WEBSOCKET", web.WebSocketResponse)
    HELD = web.AppKey("HELD", AsyncExitStack)

locked_handlers: WeakSet[Callable[..., object]] = WeakSet()


def path_of(route: web.AbstractRoute) -> str:
    """Return how a route is written, for people."""
    return "*" if route.resource is None else route.resource.canonical


_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: closing sends a reset, which no client takes for the end of a body."""


@web.middleware
async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer for the lock errors that a handler ends in."""
    try:
        return await handler(request)
    except (LockError, ConfigurationError) as error:
        refused = refusal(error, taken=request.get(TAKEN, LOCKED))
        if refused is None:
            raise
        log_refusal(f"{request.method} {path_of(request.match_info.route)}", error)
        if request.writer.output_size == 0:
            raise HTTPRefused(refused) from error
        websocket = request.get(WEBSOCKET)
        if websocket is None:
            _reset(request)
        else:
            await websocket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=refused.detail.encode())
        raise


@web.middleware
async def release_last(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Release the locks of a handler when the other middlewares have ended: one of them may commit."""
    if HELD in request:  # by the application that this one is a part of
        return await handler(request)

    async def under_locks(request: web.Request) -> web.StreamResponse:
        async with AsyncExitStack() as request[HELD]:
            return await handler(request)

    return await answer(request, under_locks)


@final
class HTTPRefused(web.HTTPError):
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


def setup(
    app: web.Application, nodes_or_manager: Iterable[Any] | LockManager | None = None, **options: Any
) -> None:
    """Give an application a lock manager; call it before the application starts.

    Over nodes, the manager is made here, started and closed with the application.  A manager that you
    made is started with the application, and yours to close: others may use it as well.

    Sub-apps find their parent's manager; one that is set up on its own uses its own.  Middlewares that
    the application has by now see the answers like any other `HTTPException`; those that are added later
    run inside, may use locks themselves, and see lock errors.  All of them end before the lock of a `locked`
    handler is released, but for those of a parent that has no manager, and those that are inserted before
    all others later.

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
        raise RuntimeError("this application already has a lock manager: call setup() once")
    if app.pre_frozen:
        raise RuntimeError("call setup() before the application starts or is added to another one")
    ours = not isinstance(nodes_or_manager, LockManager)
    if isinstance(nodes_or_manager, LockManager):
        if options:
            raise TypeError(f"options apply only to a manager that setup() makes, got {', '.join(options)}")
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
    app.middlewares.insert(0, release_last)
    app.middlewares.append(answer)


def _check_routes(app: web.Application) -> None:
    """Refuse to run a handler without the lock that its author believes it has.

    With ``@locked`` above ``@routes.post(…)``, the route has the bare function, while the function's name
    stands for the locked one, which is never called.
    """
    for route in app.router.routes():
        handler = route.handler
        module = sys.modules.get(handler.__module__)
        named: Any = getattr(module, getattr(handler, "__qualname__", ""), None)
        if (
            handler not in locked_handlers
            and named in locked_handlers
            and inspect.unwrap(named) is inspect.unwrap(handler)
        ):
            raise RuntimeError(
                f"{route.method} {path_of(route)} runs {handler.__qualname__} without its lock: put "
                "@locked below the route's decorator"
            )


async def _note_websocket(request: web.Request, response: web.StreamResponse) -> None:
    if isinstance(response, web.WebSocketResponse):
        request[WEBSOCKET] = response
