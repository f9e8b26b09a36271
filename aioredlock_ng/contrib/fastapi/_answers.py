"""Lock errors as HTTP answers and WebSocket closes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import fastapi.routing
from fastapi import FastAPI, WebSocket, status
from fastapi.responses import JSONResponse
from fastapi.websockets import WebSocketDisconnect, WebSocketState
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ... import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockTakenError,
    ManagerClosedError,
    QuorumUnavailableError,
)
from .._http import LOCKED, Refusal, Taken, log_refusal, refusal
from ._requests import route_of, tree

TAKEN: Final = "_aioredlock_ng_taken"
"""Attribute of what `locked` makes, and of its `LockTakenError`: how that is answered."""


def add_exception_handlers(app: FastAPI) -> None:
    """Answer lock errors, those of plain ``async with manager.lock(…)`` included.

    Taken: 409, or the `status_code` of the `locked` it comes from.  No quorum, a lost lock, a closed manager,
    or a `ConfigurationError`, such as that of nodes that cannot be one quorum: 503.  Each with
    ``Retry-After``, where a moment is known, and the reason as ``detail``; a WebSocket that was accepted is
    closed with 1013 ("try again later").  Errors that are bugs, such as `WouldDeadlockError`, remain a 500.

    FastAPI apps that are mounted in it before it starts answer in the same way, but for errors that
    they handle themselves.

    The app's OpenAPI document tells of these answers at each route that has a `locked`; those of locks that
    an endpoint takes itself are documented by ``responses=LOCK_RESPONSES`` there.
    """
    app.openapi = _documenting(app, app.openapi)  # type: ignore[method-assign]  # as FastAPI's docs do it
    for kind in (
        LockTakenError,
        QuorumUnavailableError,
        LockLostError,
        ManagerClosedError,
        ConfigurationError,
    ):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(_with_mounted, parent=app)


def _with_mounted(app: ASGIApp, parent: FastAPI) -> ASGIApp:
    """Have apps that are mounted in `parent` answer; called when it starts, or serves its first request."""
    for mounted in _mounted(parent.routes):
        if mounted.middleware_stack is None:
            own = dict(mounted.exception_handlers)
            add_exception_handlers(mounted)  # and those in it
            mounted.exception_handlers.update(own)
    return app


def _mounted(routes: Sequence[BaseRoute]) -> Iterator[FastAPI]:
    """Yield the FastAPI apps that are mounted there, at any depth, but not those in one of them."""
    for context in _flattened(routes):
        route = getattr(context, "original_route", context)
        # That of a mount may stand behind middlewares.
        mounted = getattr(route, "_base_app", getattr(route, "app", None))
        if isinstance(mounted, FastAPI):
            yield mounted
        else:
            yield from _mounted(getattr(mounted, "routes", ()))


async def _answer(connection: HTTPConnection, error: Exception) -> Any:
    """Answer a lock error; nothing is returned for a WebSocket, which is closed here."""
    assert isinstance(error, (LockError, ConfigurationError))
    answer = refusal(error, taken=getattr(error, TAKEN, LOCKED))
    assert answer is not None, "the kinds that are handled are all refusals"
    log_refusal(getattr(route_of(connection), "path", "?"), error)
    response = JSONResponse({"detail": answer.detail}, answer.status, answer.headers)
    if not isinstance(connection, WebSocket):
        return response
    with suppress(OSError, WebSocketDisconnect):  # the client has left
        await _turn_away(connection, answer, response)
    return None


async def _turn_away(websocket: WebSocket, answer: Refusal, response: JSONResponse) -> None:
    if websocket.application_state is WebSocketState.CONNECTING:
        if "websocket.http.response" in websocket.scope.get("extensions", {}):
            await websocket.send_denial_response(response)
            return
    elif WebSocketState.DISCONNECTED in (websocket.application_state, websocket.client_state):
        return
    await websocket.close(status.WS_1013_TRY_AGAIN_LATER, answer.detail)


def _documented(description: str) -> dict[str, Any]:
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
    return {
        "description": description,
        "headers": {
            "Retry-After": {"description": "Seconds to wait, where known.", "schema": {"type": "integer"}}
        },
        "content": {"application/json": {"schema": detail}},
    }


_NO_LOCK: Final = "The lock could not be acquired, or was lost."

LOCK_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    409: _documented("Locked by another request."),
    503: _documented(_NO_LOCK),
}
"""For OpenAPI: ``responses=LOCK_RESPONSES`` at a route whose endpoint takes locks itself."""


def _documenting(app: FastAPI, openapi: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return what makes the OpenAPI document of `app`, with the answers of its locks."""

    def document() -> dict[str, Any]:
        schema = openapi()
        for route in _flattened(app.routes):
            # Only those of FastAPI's own for HTTP have both; a custom `openapi` may leave some of them out.
            dependant = getattr(route, "dependant", None)
            if dependant is not None and getattr(route, "include_in_schema", False):
                for taken in (getattr(node.call, TAKEN, None) for node in tree(dependant)):
                    if taken is not None:
                        _tell(taken, schema.get("paths", {}).get(route.path_format, {}), route.methods)
        return schema

    return document


def _flattened(routes: Sequence[BaseRoute]) -> Iterator[Any]:
    """Return the routes of an app; newer versions of FastAPI keep those of included routers apart."""
    contexts = getattr(fastapi.routing, "iter_route_contexts", None)
    return iter(routes) if contexts is None else contexts(routes)


def _tell(taken: Taken, operations: dict[str, Any], methods: Iterable[str]) -> None:
    for method in methods:
        if (operation := operations.get(method.lower())) is None:
            continue
        responses = operation.setdefault("responses", {})
        described = _documented(f"{taken.detail[0].upper()}{taken.detail[1:]}.")
        responses.setdefault(f"{taken.status:d}", described)
        responses.setdefault("503", _documented(_NO_LOCK))
