"""How many connections the dashboard has, and for how long one may be open that asks for nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, final

from .._log import report

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS: Final = 256
"""Connections at the same time; further ones are closed at once."""

IDLE_TIME: Final = 15.0
"""Seconds for which a connection may be open without a request, or with half a one."""


@final
class Doorway:
    """Makes the protocols of a web server, for a listening socket."""

    def __init__(self) -> None:
        self.server: web.Server | None = None
        """The web server, once it is made."""
        self._silent: set[asyncio.BaseProtocol] = set()  # young connections that have not asked yet
        self._made = 0  # protocols in this turn of the loop, of which the server does not know yet
        self._full = False

    def __call__(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        assert self.server is not None, "made before it listens"
        number = len(self.server.connections) + self._made
        if number >= MAX_CONNECTIONS:
            self._tell(number)
            return _TurnedAway()
        self._full = self._full and number > MAX_CONNECTIONS // 2
        protocol, loop = self.server(), asyncio.get_running_loop()
        if not self._made:
            loop.call_soon(self._forget_made)
        self._made += 1
        self._silent.add(protocol)
        loop.call_later(IDLE_TIME, self._close_if_silent, protocol)
        return protocol

    def _forget_made(self) -> None:
        self._made = 0

    def _tell(self, number: int) -> None:
        """Log it, once until there is room again: what fills the page must not fill the log, too."""
        if not self._full:
            self._full = True
            report(
                logging.WARNING,
                "dashboard: %d connections are open; further ones are closed at once",
                number,
            )

    async def has_asked(self, request: web.Request, _response: web.StreamResponse) -> None:
        """Note that a whole request has come, which is being answered: from now on the server looks at it."""
        self._silent.discard(request.protocol)

    def _close_if_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.remove(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()


@final
class _TurnedAway(asyncio.Protocol):
    """That of a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "of a stream"
        transport.abort()
