"""The handshake: redis-py's login, within bounds, and the commands before the connection is ours."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from .. import _scripts
from .._core.rights import unknown
from .._log import one_line
from ..errors import ConfigurationError
from .addresses import Addresses, UnreachableError, is_address
from .failures import withheld
from .plain import facts_in, text

_SECTIONS: Final = (b"server", b"replication", b"memory")
"""The sections of ``INFO`` that identify the server, and show its eviction policy."""

RESP2: Final = 2

RESP3: Final = 3
"""The protocol in which a server can push messages: notifications of releases (R13)."""

MAX_LAST_WORDS: Final = 300
"""Characters that are told of an error with which a peer hung up."""

_KEPT: Final = 4096
"""Bytes at the end of what a peer has sent that are kept for its last words."""

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
        with asking(connection, words[0]):
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


class HungUpError(RedisConnectionError):
    """The peer ended the connection, and did not say why."""


class LastWordsError(RedisConnectionError):
    """The peer ended the connection with this error: it may repeat anything that it was sent."""


@contextlib.contextmanager
def asking(connection: Connection, command: str) -> Iterator[None]:
    """Give the reason of a peer that hangs up: its last words if they are an error, else the command."""
    reader = connection._reader  # noqa: SLF001
    assert reader is not None, "connected"
    try:
        yield
    except Exception as error:
        ended = reader.exception() or reader._eof  # type: ignore[attr-defined]  # noqa: SLF001
        # It is there, or we end the connection.  Libraries raise various errors for one that is lost.
        if (
            not ended
            or ended is error
            or (isinstance(error, RedisError) and type(error) is not RedisConnectionError)
        ):
            raise
        # A server that is full, or may not be used from here, says so before it is asked.  redis-py does
        # not read that where writing fails first, and passes over it where it awaits an answer of no account.
        if words := _last_words(connection):
            raise LastWordsError(words) from error
        # Proxies may do so at an unknown command.
        raise HungUpError(
            f"it hung up at {command}: it is a proxy that does not know the command, or a server that is "
            "shutting down"
        ) from error


def _last_words(connection: Connection) -> str:
    """Return the last line that the peer has sent, if it is an error; else an empty string."""
    heard: bytes = getattr(connection, "heard", b"")
    line = heard.rstrip(b"\r\n").rpartition(b"\n")[2]
    words = line[1:].decode(errors="replace").strip().removeprefix("ERR ")
    if not line.startswith(b"-"):
        return ""
    return one_line(words if len(words) <= MAX_LAST_WORDS else f"{words[:MAX_LAST_WORDS]}…")


class LoginError(Exception):
    """The handshake failed, on a connection that was made."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


async def log_in_by_resp3(connection: Connection, users: OnConnect | None) -> None:
    """Log in and check for RESP3; a failure here is a `LoginError`, unlike those before and after it."""
    try:
        await log_in(connection, users, "HELLO")
        with asking(connection, "HELLO"):
            await _expect_resp3(connection)
    except Exception as error:
        raise LoginError(error) from error


async def log_in(connection: Connection, users: OnConnect | None, command: str = "login") -> None:
    """Do what redis-py does when connected, or what a user has it do instead, within bounds."""
    _expect_end(connection)
    _listen(connection)
    with asking(connection, command):
        done = connection.on_connect() if users is None else users(connection)
        if done is not None:
            await done


def _listen(connection: Connection) -> None:
    """Limit what comes in the handshake to what a Redis server can send, and keep the end of it."""
    reader, left = connection._reader, MAX_HANDSHAKE  # noqa: SLF001
    assert reader is not None, "connected"
    feed = reader.feed_data
    heard = bytearray(getattr(reader, "_buffer", b""))
    connection.heard = heard  # type: ignore[attr-defined]

    def bounded(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            error = RedisConnectionError(f"it sent more than {MAX_HANDSHAKE} bytes in the handshake")
            reader.set_exception(error)
            return
        heard.extend(data)
        del heard[:-_KEPT]
        feed(data)

    reader.feed_data = bounded  # type: ignore[method-assign, assignment]


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
    with asking(connection, "INFO"):
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
    with asking(connection, "SCRIPT LOAD"):
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
