"""The manager that lives with the application."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiohttp import web

from ... import LockManager
from ._answers import answer
from ._keys import MANAGER, WEBSOCKET, locked_handlers, path_of


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
