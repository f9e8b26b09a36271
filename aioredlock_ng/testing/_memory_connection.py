"""A TCP connection in memory, between a `Link` and a `MemoryNode`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol, final

import hiredis


class Server(Protocol):
    """What a connection needs of the server behind it."""

    @property
    def answers(self) -> bool:
        """Whether the server executes what arrives."""

    def delay(self) -> float:
        """Return the seconds that the next message takes."""

    def execute(self, words: list[bytes], client: MemoryConnection | None) -> bytes:
        """Execute one command of a client and return the reply."""

    def forget(self, connection: MemoryConnection) -> None:
        """Drop a connection that has ended."""


@final
class MemoryConnection(asyncio.Transport):
    """A TCP connection in memory, seen as the client's transport.

    Nothing inside it is skipped or overtaken, neither replies nor what is pushed between them.  After
    `close` (FIN) the server still executes all that was sent; after `abort` (RST) only what had arrived.
    """

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._requests = hiredis.Reader(notEnoughData=None)
        self._arrived: deque[bytes] = deque()
        self._answers: list[bytes] = []
        self._on_the_way_back: deque[bytes] = deque()
        self._working = False
        self._there_at = self._back_at = 0.0
        self._protocol: asyncio.Protocol | None = None
        self._reset = False
        self._over = False
        self._closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._there_at = max(self._there_at, self._loop.time() + self._server.delay())
            self._loop.call_at(self._there_at, self._arrive, bytes(data))

    def _arrive(self, data: bytes) -> None:
        if not self._reset:
            self._arrived.append(data)
            self.work()

    def work(self) -> None:
        """Execute what has arrived, if the server runs, and send the replies."""
        self._working = True
        while self._arrived and self._server.answers:
            self._requests.feed(self._arrived.popleft())
            while (words := self._requests.gets()) is not None:
                self._answers.append(self._server.execute(words, self))
        self._working = False
        self._send_back()
        if self._over and not self._arrived:
            self._server.forget(self)

    def push(self, data: bytes) -> None:
        """Send what nobody has asked for, such as a message on a channel."""
        self._answers.append(data)
        if not self._working:
            self._send_back()

    def _send_back(self) -> None:
        if self._answers:
            self._on_the_way_back.append(b"".join(self._answers))
            self._answers.clear()
            self._back_at = max(self._back_at, self._loop.time() + self._server.delay())
            self._loop.call_at(self._back_at, self._reply)

    def _finish(self) -> None:
        """Nothing more will arrive; a frozen server keeps what has, and executes it later."""
        self._over = True
        self.work()

    def _reply(self) -> None:
        data = self._on_the_way_back.popleft()
        if not self._closing and self._protocol is not None:
            self._protocol.data_received(data)

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._reset = True
        self._end(None)

    def reset(self) -> None:
        """Reset from the server's side, which is done with it."""
        self._reset = True
        self._arrived.clear()
        self._server.forget(self)
        self._end(ConnectionResetError("reset by the server"))

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_at(max(self._there_at, self._loop.time()), self._finish)
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)
