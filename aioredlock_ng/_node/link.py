"""A live connection: writes once per turn of the event loop, feeds the pipe, ends in order (R5, R15)."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Final, final
from weakref import WeakKeyDictionary

from .._core.command import Command, Purpose
from .._log import CONTAINED
from . import fork
from .pipe import DesynchronisedError, Fail, Pipe

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""`SO_LINGER` on, zero seconds: closing sends RST and drops what the kernel still holds."""

_ACKNOWLEDGED_WITHIN_MS: Final = 5000
"""Sent bytes that the peer's kernel does not acknowledge for this long end the connection."""


@final
class Link(asyncio.Protocol):
    """A live connection: a transport and its pipe.

    Writing needs no task: the commands of one turn of the event loop leave in one write at its end, so that
    even releases of tasks that are being torn down still leave.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        on_failure: Fail,
        *,
        keep: object = None,
        resp3: bool = True,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport = transport
        self._keep = keep
        self.resp3 = resp3
        """Whether the server can push messages, as RESP3 does."""
        self.resp3_in_doubt = False
        """Whether it speaks RESP2 only because its peer hung up at ``HELLO 3``: RESP3 may work later."""
        self.lost: asyncio.Future[str] = self.loop.create_future()
        """Done, with the reason, when the connection has ended."""
        self._ended: asyncio.Future[None] = self.loop.create_future()
        flush_soon = flusher(self.loop).soon
        self.pipe = Pipe(on_failure, functools.partial(flush_soon, self.flush, self.loop), self._mismatch)
        # No methods of ours in between: there are ten writes and ten replies in every cycle.
        self.pipe.write, self.pipe.on_unwritten = transport.write, self._not_written
        self.data_received = self.pipe.feed  # type: ignore[method-assign]
        self.mismatched = False
        """Whether a reply came that cannot belong to its request (R15)."""
        self._generation = fork.generation
        fork.close_in_children(self.pipe)  # there the socket is the parent's, and so are the locks on it

    def flush(self) -> None:
        """Write the queued commands."""
        if data := self.pipe.take():
            try:
                self.pipe.write(data)
            except CONTAINED as error:  # it must not keep other links from writing
                self._not_written(error)

    def _not_written(self, error: BaseException) -> None:
        """Give the connection up: bytes of its pipe could not be written."""
        self.give_up(f"writing to it failed: {error}")

    def _mismatch(self, error: DesynchronisedError) -> None:
        """Give the connection up: a reply came that cannot belong to its request."""
        self.mismatched = True
        self.give_up(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the transport has ended."""
        if not self._ended.done():
            self._ended.set_result(None)
        self._end(f"connection lost: {exc}" if exc else "the server closed the connection")

    def give_up(self, reason: str) -> None:
        """End the connection by a reset, which drops the bytes that the peer's kernel has not received.

        A plain close could deliver an old SET later, behind its release: a ghost lock (R5).  Commands that
        were received are still executed, even by a server that is frozen now: the ledger covers that.
        """
        # The transport may be closed already, and then raise what its event loop makes of that.
        with suppress(*CONTAINED):
            sock: socket.socket | None = self.transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        with suppress(*CONTAINED):
            self.transport.abort()
        self._end(reason)

    async def aclose(self, timeout: float) -> None:
        """Write the queued commands, and close in order.

        A peer that has not answered everything may not have read everything, and a socket that is closed
        answers its next reply with a reset, which drops the rest.  So we keep reading until it closes, too.
        A peer that does not (TLS waits for it in any case) is left after `timeout` seconds.
        """
        # A forked child: the socket is its parent's.
        if self._generation != fork.generation:
            return
        self.flush()
        if not self._close_our_half():
            self.transport.close()
        self._end("the manager is closed")
        try:
            await asyncio.wait((self._ended,), timeout=timeout)
        finally:
            if not self._ended.done():
                self.transport.abort()

    def _close_our_half(self) -> bool:
        """Send an end of file, if answers are still to come; False when that is not possible."""
        if not self.pipe or self.lost.done() or not self.transport.can_write_eof():
            return False
        try:
            self.transport.write_eof()
        except OSError:  # reset by the peer, before the loop has noticed
            return False
        return True

    def _end(self, reason: str) -> None:
        self.pipe.close()
        if not self.lost.done():
            self.lost.set_result(reason)


@final
class Flusher:
    """Flushes all writers of one loop at the end of each turn of it."""

    def __init__(self) -> None:
        self._writers: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def hold(self) -> bool:
        """Keep what is queued until `flush`, which the caller calls in this turn; False: others wait."""
        if self._scheduled:
            return False
        self._scheduled = True
        return True

    def soon(self, write: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `write` at the end of this turn."""
        self._writers.append(write)
        if not self._scheduled:
            # Without a loop of its own: it must not keep one alive.
            loop.call_soon(self.flush, loop, context=Context())
            self._scheduled = True

    def flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush the writers now."""
        writers = self._writers
        try:
            # A flush may queue further writers.
            while writers:
                writers.popleft()()
        finally:
            # If one raised, the others still write, in the next turn.
            self._scheduled = False
            if writers:
                self.soon(writers.popleft(), loop)


_flushers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Flusher]] = WeakKeyDictionary()


def flusher(loop: asyncio.AbstractEventLoop) -> Flusher:
    """Return the flusher of a loop."""
    if loop not in _flushers:
        _flushers[loop] = Flusher()
    return _flushers[loop]


def notice_dead_peers(transport: asyncio.BaseTransport) -> None:
    """Let the kernel end a connection whose peer has vanished silently."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _ACKNOWLEDGED_WITHIN_MS)


def unverified(transport: asyncio.BaseTransport) -> str | None:
    """Return the reason why TLS does not verify the server; empty: it does, None: there is no TLS."""
    context: ssl.SSLContext | None = transport.get_extra_info("sslcontext")
    if context is None:
        return None
    if context.verify_mode is ssl.CERT_NONE:
        return "its certificate is not verified"
    return "" if context.check_hostname else "its certificate may be for another host name"


def heartbeat(nonce: bytes) -> Command:
    """Build a PING whose answer proves that replies still belong to their requests (R15)."""
    return Command(
        Purpose.OTHER, owner=b"", fits=lambda reply: reply == nonce, keys=(), args=(nonce,), verb=b"PING"
    )
