"""A TCP connection in memory, between a `Link` and a `MemoryNode`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol, final

import hiredis

from ._memory_wire import Goodbye, Lane, Wire


class Server(Protocol):
    """What a connection needs of the server behind it."""

    @property
    def answers(self) -> bool:
        """Whether the server executes what arrives."""

    def execute(self, words: list[bytes], client: MemoryConnection | None) -> bytes:
        """Execute one command of a client and return the reply."""

    def forget(self, connection: MemoryConnection) -> None:
        """Drop a connection that has ended."""


@final
class MemoryConnection(asyncio.Transport):
    """A TCP connection in memory, seen as the client's transport.

    Nothing inside it is skipped or overtaken, neither replies nor what is pushed between them.  After
    `write_eof` and `close` (FIN) the server still executes all that was sent, after `abort` (RST) all that
    was not held up.  A real server reads in pieces: after `close` it may lose what it has not read when its
    first answer is answered with a reset.
    """

    def __init__(self, server: Server, wire: Wire) -> None:
        super().__init__()
        self._server = server
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(notEnoughData=None)
        self._requests = Lane(wire, self._arrive, requests=True)
        self._replies = Lane(wire, self._come_back, requests=False)
        self._arrived: deque[bytes] = deque()
        self._answers: list[bytes] = []
        self._working = False
        self._protocol: asyncio.Protocol | None = None
        self._said_all = False  # the client sends nothing more
        self._over = False  # the server knows that nothing more will arrive
        self._gone = False  # the server has no such connection any more
        self._closing = False  # the client has none
        self.aborted = False
        """Whether the client has reset it, rather than closed."""

    # -- the client's end ----------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self._said_all:
            self._requests.send(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._said_all:
            self._said_all = True
            self._requests.send(Goodbye.FIN)

    def close(self) -> None:
        self._hang_up(Goodbye.FIN)

    def abort(self) -> None:
        self.aborted = True
        self._requests.take_back()
        if self._requests.cut:  # all that is held up is lost, the reset too, and not sent again
            self._requests.close()
        self._hang_up(Goodbye.RST)

    def _hang_up(self, goodbye: Goodbye) -> None:
        if not self._closing:
            self._closing = True
            if not self._requests.closed and not (self._said_all and goodbye is Goodbye.FIN):
                self._requests.send(goodbye)
            self._replies.close()
            self._end(None)

    def _come_back(self, data: bytes | Goodbye) -> None:
        """Hand the client what has come to its end."""
        self._wire.network.hand(self._loop, self._received, data)

    def _received(self, data: bytes | Goodbye) -> None:
        if self._closing:
            return
        if isinstance(data, Goodbye):
            self._closing = True
            self._requests.close()
            self._replies.close()
            self._end(None if data is Goodbye.FIN else ConnectionResetError("reset by the server"))
        elif self._protocol is not None:
            self._protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if self._protocol is not None and not self._loop.is_closed():
            self._loop.call_soon(self._protocol.connection_lost, error)

    # -- the server's end ----------------------------------------------------------------------

    def _arrive(self, data: bytes | Goodbye) -> None:
        if isinstance(data, Goodbye):
            self._over = True
            self._requests.close()
        if self._gone:
            self._say_reset()  # the first one may have been lost
        elif isinstance(data, Goodbye):
            self.work()
        else:
            self._arrived.append(data)
            self.work()

    def work(self) -> None:
        """Execute what has arrived, if the server runs, and send the replies."""
        self._working = True
        while self._arrived and self._server.answers:
            self._parser.feed(self._arrived.popleft())
            while not self._gone and (words := self._parser.gets()) is not None:
                self._execute(words)
        self._working = False
        self._send_back()
        if self._over and not self._arrived and self._server.answers:
            self._server.forget(self)
            if not self._closing:
                self._replies.send(Goodbye.FIN)

    def _execute(self, words: list[bytes]) -> None:
        after = self._wire.breaks.pop(0).after if self._wire.breaks else None
        if after is not False:
            answer = self._server.execute(words, self)
        if after is None:
            self._answers.append(answer)
        else:
            self._send_back()
            self.reset()

    def push(self, data: bytes) -> None:
        """Send what was not asked for, such as a message on a channel."""
        self._answers.append(data)
        if not self._working:
            self._send_back()

    def _send_back(self) -> None:
        if self._answers and not self._closing:
            self._replies.send(b"".join(self._answers))
        elif self._answers and self._is_half_open and not self._requests.cut and not self._replies.cut:
            back_at = self._wire.network.time() + self._wire.delay() + self._wire.delay()
            self._wire.network.call_at(back_at, self._arrive, Goodbye.RST)
        self._answers.clear()

    @property
    def _is_half_open(self) -> bool:
        """Whether the client has none any more, and nothing is under way that tells the server so."""
        return self._closing and self._requests.closed and not self._over

    def reset(self) -> None:
        """Reset from the server's side, which is done with it."""
        if not self._gone:
            self._gone = True
            self._arrived.clear()
            self._server.forget(self)
            self._say_reset()

    def _say_reset(self) -> None:
        if not self._closing:
            self._replies.send(Goodbye.RST)
