"""A TCP connection in memory, between a `Link` and a `MemoryNode`, and the network that carries it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVarTuple

import hiredis

from .._clock import SystemClock
from .sim_loop import SimLoop

_Ts = TypeVarTuple("_Ts")

_CLOCK: Final = SystemClock()


class Network:
    """Carries messages by the running loop, which clients and nodes share.

    A machine that is suspended (`SimLoop.suspend`) is the client's: the nodes' clocks go on.
    """

    _identities = itertools.count(1)

    def new_identity(self) -> str:
        """Return what no server process has been called yet."""
        return f"{next(self._identities):040x}"

    def time(self) -> float:
        """Return the time that messages go by; but for a `SimLoop` no test can freeze it."""
        loop = asyncio.get_running_loop()
        return loop.time() if isinstance(loop, SimLoop) else _CLOCK.now()

    def clock(self) -> float:
        """Return the time that the nodes' clocks go by."""
        loop = asyncio.get_running_loop()
        return loop.clock.now() if isinstance(loop, SimLoop) else _CLOCK.now()

    def call_at(self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Let something happen between two ends of a connection, or at a node."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop):
            loop.call_at(when, callback, *args)
        elif (wait := when - _CLOCK.now()) > 0:
            loop.call_later(wait, callback, *args)
        # Now, which needs no timer: the loop's clock may be frozen.
        else:
            loop.call_soon(callback, *args)

    def hand(self, loop: asyncio.AbstractEventLoop, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Let something happen in a client's loop: it has come to its end of the connection."""
        callback(*args)


class MemoryServer(Protocol):
    """The part of a `MemoryNode` that its connections use."""

    network: Network

    @property
    def answers(self) -> bool:
        """Whether the server executes what arrives."""

    def delay(self) -> float:
        """Return the seconds that the next message takes."""

    def execute(self, words: list[bytes], client: MemoryConnection | None) -> bytes:
        """Execute one command of a client and return the reply."""

    def forget(self, connection: MemoryConnection) -> None:
        """Drop a connection that has ended."""


class Goodbye(Enum):
    """The end of a connection, as it travels."""

    FIN = auto()
    """All has been sent."""
    RST = auto()
    """It is reset."""


class Lane:
    """One direction of a connection: all that is sent arrives in order, later."""

    def __init__(self, server: MemoryServer, arrive: Callable[[bytes | Goodbye], None]) -> None:
        self._server = server
        self._arrive = arrive
        self._sent: deque[bytes | Goodbye] = deque()
        self._due_at = 0.0
        self.closed = False

    def send(self, what: bytes | Goodbye) -> None:
        """Let it arrive at the other end."""
        network = self._server.network
        self._due_at = max(self._due_at, network.time() + self._server.delay())
        self._sent.append(what)
        network.call_at(self._due_at, self._deliver)

    def close(self) -> None:
        """Carry nothing more."""
        self.closed = True
        self._sent.clear()

    def _deliver(self) -> None:
        if self._sent:  # the oldest, whichever timer is called: loops may turn equal times round
            self._arrive(self._sent.popleft())


class MemoryConnection(asyncio.Transport):
    """A TCP connection in memory, seen as the client's transport.

    Nothing inside it is skipped or overtaken, neither replies nor what is pushed between them.  After
    `write_eof` and `close` (FIN), and after `abort` (RST), the server still executes all that was sent.  A
    real server reads in pieces: after `close` it may lose what it has not read when its first answer is
    answered with a reset.
    """

    def __init__(self, server: MemoryServer) -> None:
        super().__init__()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(notEnoughData=None)
        self._requests, self._replies = self._lanes()
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

    def _lanes(self) -> tuple[Lane, Lane]:
        """Return the ways there and back."""
        return Lane(self._server, self._arrive), Lane(self._server, self._come_back)

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
        self._server.network.hand(self._loop, self._received, data)

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
            return
        if isinstance(data, bytes):
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
        self._answers.append(self._server.execute(words, self))

    def push(self, data: bytes) -> None:
        """Send what was not asked for, such as a message on a channel."""
        self._answers.append(data)
        if not self._working:
            self._send_back()

    def _send_back(self) -> None:
        if self._answers and not self._closing:
            self._replies.send(b"".join(self._answers))
        self._answers.clear()

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
