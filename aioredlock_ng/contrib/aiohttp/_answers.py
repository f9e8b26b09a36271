"""Lock errors as HTTP answers."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from typing import Final, final

from aiohttp import WSCloseCode, web
from aiohttp.typedefs import Handler

from ... import ConfigurationError, LockError
from .._http import LOCKED, Refusal, log_refusal, refusal
from ._keys import TAKEN, WEBSOCKET, path_of

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
