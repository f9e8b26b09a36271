"""Lock errors as HTTP answers and WebSocket closes."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, WebSocket, status
from fastapi.responses import JSONResponse
from fastapi.websockets import WebSocketDisconnect, WebSocketState
from starlette.requests import HTTPConnection

from ... import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockTakenError,
    ManagerClosedError,
    QuorumUnavailableError,
)
from .._http import Refusal, log_refusal, refusal
from ._names import route_of

_STATUS: Final = "_aioredlock_ng_status"
"""Attribute of a `LockTakenError`: the status that its `locked` asked for."""


def ask_for(status_code: int, error: LockTakenError) -> None:
    """Have an error answered with a status other than 409."""
    setattr(error, _STATUS, status_code)


def add_exception_handlers(app: FastAPI) -> None:
    """Answer lock errors, those of plain ``async with manager.lock(…)`` included.

    Taken: 409, or the `status_code` of the `locked` it comes from.  No quorum, a lost lock, a closed manager,
    or a `ConfigurationError`, such as that of nodes that cannot be one quorum: 503.  Each with
    ``Retry-After``, where a moment is known, and the reason as ``detail``; a WebSocket that was accepted is
    closed with 1013 ("try again later").  Errors that are bugs, such as `WouldDeadlockError`, remain a 500.

    An app that is mounted in another one answers for itself: call this for each.
    """
    for kind in (
        LockTakenError,
        QuorumUnavailableError,
        LockLostError,
        ManagerClosedError,
        ConfigurationError,
    ):
        app.add_exception_handler(kind, _answer)


async def _answer(connection: HTTPConnection, error: Exception) -> Any:
    """Answer a lock error; nothing is returned for a WebSocket, which is told here."""
    assert isinstance(error, (LockError, ConfigurationError))
    answer = refusal(error, taken=getattr(error, _STATUS, HTTPStatus.CONFLICT))
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


LOCK_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    409: _documented("Locked by another request."),
    503: _documented("The lock could not be acquired, or was lost."),
}
"""For OpenAPI: ``responses=LOCK_RESPONSES`` at a route, a router or the app."""
