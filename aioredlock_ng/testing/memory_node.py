"""An in-memory Redis master that speaks RESP, with the same answers as a real server.

The connection, the pipe, the reconnecting and the ledger in front of it are the shipping code, and so are the
Lua scripts that it runs; only the socket and the server behind it are not there.  What its commands answer is
verified against real servers by the conformance tests.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, final

from .. import _scripts
from .._core.policy import number
from .._node.handshake import Identity
from .._node.link import Link
from .._node.pipe import Fail
from .._node.redis_node import Node
from ._memory_connection import MemoryConnection, Network
from ._memory_data import NodeClock, Snapshot
from ._memory_server import MemoryServer

Latency: TypeAlias = float | Callable[[], float]
"""Seconds from one end of a connection to the other, or what draws them for each message."""

EXECUTED_KEPT: Final = 1_000_000
"""Commands that a master remembers having executed; when there are more, the older half is forgotten."""

_numbers = itertools.count(1)


class MemoryNode:
    """One master; give it to any number of managers of one event loop.

    Args:
        name: for messages; default ``memory-1`` and so on.
        latency: one-way, in seconds from 0 on; or what draws them for each message.
        clock_offset: seconds that its wall clock is ahead, or behind when negative.  Keys expire by that
            clock, as in Redis.
        network: what carries messages; default the running loop.

    Raises:
        ImportError: lupa is not installed, which runs the scripts: it comes with the extra ``testing``.
        TypeError: `latency` is neither a number nor callable.
        ValueError: `latency` is negative, NaN or infinite, or `clock_offset` is NaN or infinite.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        latency: Latency = 0.0,
        clock_offset: float = 0.0,
        network: Network | None = None,
    ) -> None:
        if not callable(latency) and not 0 <= number("latency", latency) < math.inf:
            raise ValueError(f"latency must be finite and not negative, got {latency!r}")
        self.name = f"memory-{next(_numbers)}" if name is None else name
        self.latency = latency
        self.executed: list[tuple[bytes, ...]] = []
        """The commands executed, but for heartbeats, in order: the last `EXECUTED_KEPT` at most."""
        self.network = Network() if network is None else network
        self._server = MemoryServer(
            lambda: len(self._connections),
            clock=NodeClock(self.network.clock, clock_offset),
            new_identity=self.network.new_identity,
        )
        self.refusal = ""
        """The error that every command is answered with; ``""`` when none is."""
        self._connections: list[MemoryConnection] = []
        self.frozen = False
        """Whether it has been frozen, and has not gone on."""
        self.running = True
        """Whether it has a process, and has not crashed."""

    def __repr__(self) -> str:
        state = "frozen" if self.frozen else "running" if self.running else "down"
        return f"<MemoryNode {self.name} {state}, {len(self._server.data)} keys>"

    def link(self) -> Node:
        """Return one manager's node over this master; a manager calls it itself."""
        return Node(MemoryEndpoint(self, self.open))

    # -- what tests do to it -------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop answering, like a process that got SIGSTOP: what arrives waits."""
        self.frozen = True

    def thaw(self) -> None:
        """Go on, and execute what has arrived meanwhile."""
        self.frozen = False
        for connection in list(self._connections):
            connection.work()

    def crash(self, *, keep_data: bool = False) -> None:
        """Die: connections are reset, and new ones are refused until `restart`.

        Args:
            keep_data: the data survives, as with an append-only file; without it, it is gone.
        """
        self.running = False
        if not keep_data:
            self._server.flush_all()
        self.disconnect()

    def restart(self, *, from_: Snapshot | None = None) -> None:
        """Come back as a new process: with the data that `crash` kept, else empty.

        Args:
            from_: an older state to come back with, instead.
        """
        if self.running:
            self.crash()
        self._server.new_process()
        if from_ is not None:
            self._server.restore(from_)
        self.running, self.frozen = True, False

    def snapshot(self) -> Snapshot:
        """Return the data as it is now, for `restart`."""
        return self._server.snapshot()

    def flush(self) -> None:
        """Lose all data, as by ``FLUSHALL``; process, scripts and connections stay."""
        self._server.flush()

    def step_clock(self, seconds: float) -> None:
        """Set the node's wall clock `seconds` forward, or back: keys expire sooner, or later.

        Raises:
            ValueError: `seconds` is NaN or infinite.
        """
        self._server.clock.step(seconds)

    def set_clock_rate(self, rate: float) -> None:
        """Let the node's wall clock go at `rate` from now on; its time does not jump.

        Args:
            rate: seconds per second, from 0 on: 1.0 is right, 0.0 stands still.

        Raises:
            RuntimeError: no loop runs, so there is no "now".
            ValueError: `rate` is negative, NaN or infinite.
        """
        try:
            self._server.clock.set_rate(rate)
        except RuntimeError as error:  # of the network: the running loop, which is none
            raise RuntimeError(
                f"the clock of {self.name} goes by the running loop: call set_clock_rate in a coroutine"
            ) from error

    def disconnect(self) -> None:
        """Reset every connection; the server itself goes on."""
        for connection in list(self._connections):
            connection.reset()

    def flush_scripts(self) -> None:
        """Forget all scripts, as ``SCRIPT FLUSH`` does."""
        self._server.flush_scripts()

    def refuse(self, error: str) -> None:
        """Answer every command with an error, until `refuse` is called with ``""``.

        Args:
            error: one line, such as ``BUSY Redis is busy running a script.``.

        Raises:
            TypeError: `error` is no str.
            ValueError: it is more than one line, or cannot be printed.
        """
        if not isinstance(error, str):
            raise TypeError(f"error must be a str, got {error!r}")
        if not error.isprintable():
            raise ValueError(f"error must be one line, such as 'BUSY …', got {error!r}")
        self.refusal = error

    @property
    def identity(self) -> tuple[str, str]:
        """The ``run_id`` and the ``master_replid``: of the process, and of its data."""
        return self._server.run_id, self._server.replid

    def get(self, key: bytes) -> bytes | None:
        """Return the value under `key`, if any."""
        return self._server.get(key)

    def ttl(self, key: bytes) -> float | None:
        """Return the seconds `key` has left; None when it is not there or has no expiry."""
        left = self._server.pttl(key)
        return None if left < 0 else left / 1000

    def set(self, key: bytes, value: bytes | None, ttl: float | None = None) -> None:
        """Put `value` under `key` for `ttl` seconds; None stands for a value of the wrong type."""
        self._server.set(key, value, None if ttl is None else ttl * 1000)

    def delete(self, key: bytes) -> bool:
        """Delete `key`; False when it was not there."""
        return self._server.delete(key)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that are there, sorted."""
        return tuple(self._server.live_keys())

    # -- connections ---------------------------------------------------------------------------

    def execute(self, words: list[bytes], client: MemoryConnection | None = None) -> bytes:
        """Execute one command and return the reply's bytes; only a `client` can listen to channels."""
        heartbeat = words[0] == b"PING" or words[1:2] == [_scripts.GREET.digest] or words[-1] == b"XX"
        if not heartbeat:
            self.executed.append(tuple(words))
            if len(self.executed) > EXECUTED_KEPT:
                del self.executed[: EXECUTED_KEPT // 2]
        if self.refusal:
            return b"-%b\r\n" % self.refusal.encode()
        return self._server.execute(words, client)

    def delay(self) -> float:
        """Return the seconds that the next message takes."""
        return self.latency() if callable(self.latency) else self.latency

    @property
    def answers(self) -> bool:
        """Whether the server executes what arrives."""
        return self.running and not self.frozen

    async def open(self, on_failure: Fail) -> tuple[Link, Identity]:
        """Accept a connection, once the handshake is answered."""
        while True:
            if not self.running:
                raise ConnectionRefusedError(f"{self.name} refused the connection")
            await asyncio.sleep(self.delay() + self.delay())
            if self.answers:
                return self.accept(MemoryConnection(self), on_failure)
            await asyncio.sleep(MUTE_LOOK)

    def accept(self, connection: MemoryConnection, on_failure: Fail) -> tuple[Link, Identity]:
        """Have one more connection."""
        self._server.load_all()
        self._connections.append(connection)
        link = Link(connection, on_failure)
        connection.set_protocol(link)
        return link, Identity(self._server.run_id, "master")

    def forget(self, connection: MemoryConnection) -> None:
        """Drop a connection that has ended."""
        self._server.hang_up(connection)
        if connection in self._connections:
            self._connections.remove(connection)


MUTE_LOOK: Final = 0.01
"""Seconds between a client's looks whether a server that is frozen answers its handshake."""


@final
class MemoryEndpoint:
    """See `Endpoint`.

    Args:
        server: what it leads to.
        accept: opens a connection there.
    """

    clustered = False
    prefix = b""

    def __init__(
        self, server: MemoryNode, accept: Callable[[Fail], Awaitable[tuple[Link, Identity]]]
    ) -> None:
        self._accept = accept
        self.name = server.name
        self.address: tuple[object, ...] = (id(server),)

    async def connect(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        """See `Endpoint`."""
        async with asyncio.timeout(timeout):
            return await self._accept(on_failure)

    def look_elsewhere(self) -> None:
        """See `Endpoint`: there is no other place."""
