"""The handshake: redis-py's login, within bounds, and the commands before the connection is ours."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from .. import _scripts
from .._core.rights import unknown
from ..errors import ConfigurationError
from .addresses import Addresses, UnreachableError, is_address
from .failures import withheld
from .plain import facts_in, text

_SECTIONS: Final = (b"server", b"replication", b"memory")
"""The sections of ``INFO`` that identify the server, and show its eviction policy."""

RESP2: Final = 2

RESP3: Final = 3
"""The protocol in which a server can push messages: notifications of releases (R13)."""

_HUNG_UP: Final = re.compile("closed|reset|broken pipe|lost", re.IGNORECASE)

FULL: Final = "max number of clients reached"
"""The error of a server at its `maxclients`."""

INSTEAD: Final = (
    "a node has a connection of its own; give the URL of the server or a plain client of redis.asyncio, and "
    "in tests a MemoryNode of aioredlock_ng.testing, or the URL of fakeredis.TcpFakeServer"
)
"""The advice about a client whose commands go another way than over a connection that can be taken over."""

MAX_HANDSHAKE: Final = 2**20
"""Bytes that a server may send until its connection is ours: some ten kilobytes of `INFO`, and digests."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """A server's description of itself in the handshake; None where `INFO` is denied."""

    run_id: str | None = None
    role: str | None = None
    eviction: str | None = None
    """Its ``maxmemory-policy``."""
    clustered: bool = False
    """Whether it is a server of a Redis Cluster, as far as it says."""


@functools.cache
def _driver() -> dict[str, Any]:
    """Return redis-py's name and version, which it would read from the disk for each connection, in 3 ms."""
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # an older one reads them once
        return {}
    return {"driver_info": DriverInfo()}


def make_connection(
    connection_class: type[Connection],
    options: Mapping[str, Any],
    timeout: float,
    protocol: int,
    addresses: Addresses | None = None,
) -> Connection:
    """Make a connection object; nothing is sent.  Our settings win over `options`."""
    log = log_in_by_resp3 if protocol == RESP3 else log_in
    ours: dict[str, Any] = {
        "socket_connect_timeout": timeout,  # without it a frozen server hangs the handshake for ever
        "socket_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "health_check_interval": 0,
        "protocol": protocol,
        "redis_connect_func": functools.partial(log, users=options.get("redis_connect_func")),
        "decode_responses": False,
    }
    driver = {} if {"lib_name", "lib_version"} & options.keys() else _driver()
    connection = connection_class(**{**driver, **options, **ours})
    if addresses is not None and isinstance(connection, ByName):
        connection.addresses = addresses
    return connection


OnConnect: TypeAlias = Callable[[Connection], Awaitable[None] | None]
"""A user's own `redis_connect_func`."""


async def ask_once(
    connection_class: type[Connection],
    options: Mapping[str, Any],
    timeout: float,
    addresses: Addresses,
    *words: str,
) -> object:
    """Ask a server one question, over a connection of its own."""
    connection = make_connection(connection_class, options, timeout, RESP2, addresses)
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
        await connection.send_command(*words)
        return await connection.read_response(disconnect_on_error=False)
    finally:
        discard(connection)


class ByName(Connection):
    """Connects to any of the addresses of its host, where redis-py's own may wait for the first one alone."""

    addresses: Addresses | None = None
    _socket: socket.socket | None = None

    async def _connect(self) -> None:
        if self.addresses is not None and not is_address(self.host):
            try:
                self._socket = await self.addresses.connect(self.host, self.port)
            except UnreachableError as error:
                raise RedisConnectionError(str(error)) from error
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except BaseException:
            if self._socket is not None:
                self._socket.close()
            raise
        finally:
            self._socket = None  # else it is the transport's

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = dict(super()._connection_arguments())
        if self._socket is not None:
            host, _ = arguments.pop("host"), arguments.pop("port")
            arguments["sock"] = self._socket
            if "ssl" in arguments:
                arguments["server_hostname"] = host
        return arguments


@final
class PlainConnection(ByName):
    """A connection over TCP."""


@final
class TlsConnection(ByName, SSLConnection):
    """A connection over TLS."""


@final
class UnixConnection(UnixDomainSocketConnection):
    """Connects, and no more: redis-py's own logs in at once, and again in `redis_connect_func`."""

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(path=self.path)


@contextlib.contextmanager
def _asking(command: str) -> Iterator[None]:
    """Name the command in the error of a peer that hangs up: proxies may do so at an unknown command."""
    try:
        yield
    except RedisConnectionError as error:
        if type(error) is RedisConnectionError and _HUNG_UP.search(str(error)):
            error.add_note(
                f"it hung up at {command}: it is a proxy that does not know the command, or a server that "
                "is shutting down"
            )
        raise


class LoginError(Exception):
    """The handshake failed, on a connection that was made."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


async def log_in_by_resp3(connection: Connection, users: OnConnect | None) -> None:
    """Log in and check for RESP3; a failure here is a `LoginError`, unlike those before and after it."""
    try:
        with _asking("HELLO"):
            await log_in(connection, users)
            await _expect_resp3(connection)
    except Exception as error:
        raise LoginError(error) from error


async def log_in(connection: Connection, users: OnConnect | None) -> None:
    """Do what redis-py does when connected, or what a user has it do instead, within bounds."""
    _expect_end(connection)
    _bound(connection)
    reader = connection._reader  # noqa: SLF001
    try:
        done = connection.on_connect() if users is None else users(connection)
        if done is not None:
            await done
    except RedisConnectionError as error:
        # A server at its limit says so and hangs up.  After a failed write no reader is given what it said.
        if FULL.encode() in getattr(reader, "_buffer", b""):
            raise RedisConnectionError(FULL) from error
        raise


def _bound(connection: Connection) -> None:
    """Limit the bytes that are read in the handshake to what a Redis server can send."""
    reader, left = connection._reader, MAX_HANDSHAKE  # noqa: SLF001
    assert reader is not None, "connected"
    read = reader.read

    async def bounded(n: int = -1) -> bytes:
        nonlocal left
        data = await read(n)
        left -= len(data)
        if left < 0:
            raise RedisConnectionError(f"it sent more than {MAX_HANDSHAKE} bytes in the handshake")
        return data

    reader.read = bounded  # type: ignore[method-assign]


def _expect_end(connection: Connection) -> None:
    """Take note of the error with which the connection ends, since redis-py does not always wait for its end.

    A stream's protocol does so when it is finalized, but in a cycle its future may be finalized first.
    """
    writer = connection._writer  # noqa: SLF001
    if not isinstance(writer, asyncio.StreamWriter):
        raise ConfigurationError(f"{type(connection).__name__} opens no stream of asyncio's: {INSTEAD}")
    closed: asyncio.Future[None] = writer._protocol._closed  # type: ignore[attr-defined]  # noqa: SLF001
    closed.add_done_callback(lambda closed: closed.cancelled() or closed.exception())


async def _expect_resp3(connection: Connection) -> None:
    """Check that the server speaks RESP3: redis-py takes almost any answer to ``HELLO 3`` for consent.

    Redis 6.0 and 6.1 know no ``HELLO`` without a version.
    """
    await connection.send_command("HELLO", RESP3)
    facts = await connection.read_response(disconnect_on_error=False)
    if not isinstance(facts, dict) or facts.get(b"proto") != RESP3:
        raise ResponseError("it accepts HELLO 3 but continues in RESP2")


def discard(connection: Connection) -> None:
    """Close a connection that was not taken over, without waiting."""
    writer = connection._writer  # noqa: SLF001
    connection._reader = connection._writer = None  # noqa: SLF001
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


async def identify(connection: Connection) -> Identity:
    """Ask the server for its identity; less is known where `INFO` is denied or renamed away."""
    facts: dict[bytes, bytes] = {}
    with _asking("INFO"):
        for section in _SECTIONS:
            await connection.send_command("INFO", section)
        for _ in _SECTIONS:
            try:
                answer = await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                if not withheld(error, "INFO"):
                    raise
                continue
            facts |= facts_in(answer)
    mode = facts.get(b"redis_mode") or facts.get(b"server_mode")
    run_id, role, eviction = map(text, map(facts.get, (b"run_id", b"role", b"maxmemory_policy")))
    return Identity(run_id, role, eviction, mode == b"cluster")


async def load_scripts(connection: Connection) -> None:
    """Load our scripts; raises the server's `ResponseError` when it refuses one.

    A server that does not know SCRIPT gets each script by its first EVAL (`Pipe`).
    """
    refusal: ResponseError | None = None
    with _asking("SCRIPT LOAD"):
        for script in _scripts.ALL:
            await connection.send_command("SCRIPT LOAD", script.source)
        for _ in _scripts.ALL:
            try:
                await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                # Read on: a refusal is raised when all answers are read.
                refusal = error
    if refusal is not None and not unknown(str(refusal)):
        raise refusal
