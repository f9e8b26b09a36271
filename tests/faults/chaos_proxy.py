"""A TCP proxy in front of a server that does to a connection what bad networks do, when the test says so.

What TCP cannot do it does not do either: within a connection bytes keep their order and none is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from typing import Final, final
from urllib.parse import urlsplit

from tests.faults.chaos_ways import END, Lane, Way

LOCALHOST: Final = "127.0.0.1"

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@final
class _End(asyncio.Protocol):
    """One end of a connection: what it reads goes down `out`, and `back` writes to it."""

    def __init__(self, connection: _Connection, out: Lane, back: Lane) -> None:
        self.transport: asyncio.Transport | None = None
        self.left = False
        self._connection = connection
        self._out = out
        self._back = back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write what has been waiting for it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = self._back.target = transport
        self._connection.made(self)
        self._back.carry()

    def data_received(self, data: bytes) -> None:
        """Send it down the lane, if there is a reader at its end."""
        if not self.left:
            self._out.arrive(data)

    def reset(self) -> None:
        """End it at once, and let the other side know by a reset."""
        assert self.transport is not None, "it was made"
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        """Let the end arrive behind all the rest."""
        self._back.target = None
        self._connection.lost(self)
        if not self.left:
            self._out.arrive(END)


@final
class _Connection:
    """A client's connection and ours to the server."""

    def __init__(self, proxy: ChaosProxy) -> None:
        self._proxy = proxy
        self._lanes = Lane(proxy.requests, self), Lane(proxy.replies, self)
        requests, replies = self._lanes
        self.client = _End(self, requests, replies)
        self.server = _End(self, replies, requests)
        self._ends: set[_End] = set()

    def made(self, end: _End) -> None:
        """Note an end that is there; the client's comes first."""
        self._ends.add(end)
        self._proxy._connections.add(self)
        if end is self.client:
            self._proxy._serve(self)
        elif self.client not in self._ends:  # it has not waited for the server
            self.close()

    def lost(self, end: _End) -> None:
        """Note an end that is gone; when the last one is, nothing is left."""
        self._ends.discard(end)
        if not self._ends:
            for lane in self._lanes:
                lane.end()
            self._proxy._connections.discard(self)

    def leave(self) -> None:
        """Let the server hang up; the client hears nothing, and what it sends goes nowhere."""
        self.client.left = self.server.left = True
        for lane in self._lanes:
            lane.end()
        if self.server.transport is not None:
            self.server.transport.abort()

    def close(self) -> None:
        """Close what is left of it."""
        for end in list(self._ends):
            assert end.transport is not None, "it was made"
            end.transport.close()

    def reset(self) -> None:
        """Send both sides a reset, the server behind what it was sent before."""
        self.client.left = self.server.left = True
        for end in list(self._ends):
            end.reset()


@final
class ChaosProxy:
    """A port of its own in front of a server's, or of several servers' in turn; `proxied` makes them."""

    def __init__(self, *urls: str) -> None:
        self.requests = Way()
        self.replies = Way()
        self.accepted = 0  # connections that clients have tried to make while the port was open
        self.rejects = False  # whether a new connection is reset at once
        self._server_ports = itertools.cycle([urlsplit(url).port for url in urls])
        # Bound for as long as it lives, and never listening: the port stays its own while it refuses.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind((LOCALHOST, 0))
        self._port: int = self._reserved.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://{LOCALHOST}:{self._port}"

    @property
    def ways(self) -> tuple[Way, Way]:
        """Both directions."""
        return self.requests, self.replies

    @property
    def connections(self) -> int:
        """The number of connections now."""
        return len(self._connections)

    def stall(self) -> None:
        """Let nothing through in either direction; what comes is kept."""
        for way in self.ways:
            way.stall()

    def flow(self) -> None:
        """Deliver what was kept, and go on."""
        for way in self.ways:
            way.flow()

    def half_open(self) -> None:
        """Let the server end all connections there are, and no client hear of it."""
        for connection in self._connections:
            connection.leave()

    def reset(self) -> None:
        """Reset all connections there are."""
        for connection in list(self._connections):
            connection.reset()

    async def open(self) -> None:
        """Take connections, unless it does."""
        if self._server is not None and self._server.is_serving():
            return
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, LOCALHOST, self._port, reuse_port=True)

    def refuse(self) -> None:
        """Close the port: new connections are refused, those there are go on."""
        if self._server is not None:
            self._server.close()

    async def aclose(self) -> None:
        """End it, and every connection."""
        self.refuse()
        self.reset()
        for task in self._connecting:
            task.cancel()
        while self._connections or self._connecting:
            await asyncio.sleep(0)  # a turn of the loop tells a transport that it has ended
        self._reserved.close()

    def _accepted(self) -> _End:
        self.accepted += 1
        return _Connection(self).client

    def _serve(self, connection: _Connection) -> None:
        if self.rejects:
            connection.reset()
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: connection.server, LOCALHOST, next(self._server_ports))
        except OSError:
            connection.close()


@contextlib.asynccontextmanager
async def proxied(urls: Iterable[str]) -> AsyncIterator[list[ChaosProxy]]:
    """Put a proxy in front of each server, or of several, whose URLs are parted by commas."""
    proxies = [ChaosProxy(*url.split(",")) for url in urls]
    try:
        for proxy in proxies:
            await proxy.open()
        yield proxies
    finally:
        for proxy in proxies:
            await proxy.aclose()
