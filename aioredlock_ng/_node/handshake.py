"""The handshake: redis-py's login, within bounds, and the commands before the connection is ours."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Final, TypeAlias, final

import redis
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

_SECTIONS: Final = (b"server", b"replication", b"memory")

Words: TypeAlias = tuple[bytes | str | int, ...]
"""A command."""

RESP2: Final = 2

RESP3: Final = 3
"""The protocol in which a server can push messages: notifications of releases (R13)."""

MAX_LAST_WORDS: Final = 300
"""Characters that a message shows of an error with which a peer hung up."""

_KEPT: Final = 4096
"""Bytes at the end of what a peer has sent that are kept for its last words."""

INSTEAD: Final = (
    "a node has a connection of its own; give the URL of the server or a plain client of redis.asyncio, and "
    "in tests a MemoryNode of aioredlock_ng.testing, or the URL of fakeredis.TcpFakeServer"
)
"""The advice about a client whose commands go another way than over a connection that can be taken over."""

MAX_HANDSHAKE: Final = 2**20
"""Bytes that a server may send until its connection is ours: some ten kilobytes of `INFO`, and digests."""


_NAMELESS: Final[Mapping[str, Any]] = (
    {"driver_info": None} if hasattr(redis, "driver_info") else {"lib_name": None, "lib_version": None}
)
"""redis-py does not tell the server its name, which takes a round trip: `introduce` does."""


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
    # A name from the URL is redis-py's business.
    named = {} if {"lib_name", "lib_version"} & options.keys() else _NAMELESS
    connection = connection_class(**{**named, **options, **ours})
    if addresses is not None and isinstance(connection, PlainConnection):
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


class PlainConnection(Connection):
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
class TlsConnection(PlainConnection, SSLConnection):
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
    """Log in by RESP3; a failure here is a `LoginError`, unlike those before and after it."""
    try:
        await log_in(connection, users, "HELLO")
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


def discard(connection: Connection) -> None:
    """Close a connection that was not taken over, without waiting."""
    writer = connection._writer  # noqa: SLF001
    connection._reader = connection._writer = None  # noqa: SLF001
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


async def introduce(connection: Connection, *, resp3: bool) -> Identity:
    """Do what remains between the login and the first greeting: in one round trip, if the scripts are there.

    Raises the server's `ResponseError` when it refuses one of our scripts.  A server that does not know
    SCRIPT gets each script by its first EVAL (`Pipe`).
    """
    named = getattr(connection, "driver_info", None) or getattr(connection, "lib_name", None)
    names = () if named else ((b"LIB-NAME", b"redis-py"), (b"LIB-VER", redis.__version__.encode()))
    groups: tuple[list[Words], ...] = (
        [("INFO", section) for section in _SECTIONS],
        # The scripts are 200 kB, which takes several round trips by itself, and nearly always there.
        [("SCRIPT EXISTS", *(script.digest for script in _scripts.ALL))],
        [("CLIENT SETINFO", *name) for name in names],
    )
    if resp3:
        # redis-py takes almost any answer to ``HELLO 3`` for consent.  Redis 6.0 and 6.1 know no ``HELLO``
        # without a version.
        try:
            hello, *answers = await _ask(connection, ("HELLO", RESP3), *chain(*groups))
        except RedisConnectionError as error:
            raise LoginError(error) from error
        if isinstance(hello, ResponseError):
            raise LoginError(hello)
        if not isinstance(hello, dict) or hello.get(b"proto") != RESP3:
            raise LoginError(ResponseError("it accepts HELLO 3 but continues in RESP2"))
    else:
        # One after the other: this may be a proxy, and the command at which it hangs up is worth knowing.
        answers = [answer for group in groups for answer in await _ask(connection, *group)]
    identity = _identity(answers[: len(_SECTIONS)])
    found = answers[len(_SECTIONS)]
    # An error: not allowed, or not known.  Loading them tells which.
    there = set(compress(_scripts.ALL, found)) if isinstance(found, list) else ()
    missing = [("SCRIPT LOAD", script.source) for script in _scripts.ALL if script not in there]
    for answer in await _ask(connection, *missing):
        if isinstance(answer, ResponseError) and not unknown(str(answer)):
            raise answer
    return identity


async def _ask(connection: Connection, *commands: Words) -> list[Any]:
    """Send commands in one write, and return the answers; a server's error is an answer."""
    answers: list[Any] = []
    for command in commands:
        with asking(connection, str(command[0])):
            if not answers:
                await connection.send_packed_command(connection.pack_commands(commands))
            try:
                answers.append(await connection.read_response(disconnect_on_error=False))
            except ResponseError as error:
                answers.append(error)
    return answers


def facts_in(answer: object) -> dict[str, str]:
    """Read an answer to ``INFO``; any other reply has no facts."""
    lines = answer.decode(errors="replace").splitlines() if isinstance(answer, bytes) else ()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _identity(answers: Sequence[Any]) -> Identity:
    """Read who the server is; less is known where `INFO` is denied or renamed away."""
    facts: dict[str, str] = {}
    for answer in answers:
        if not isinstance(answer, ResponseError):
            facts |= facts_in(answer)
        elif not withheld(answer, "INFO"):
            raise answer
    mode = facts.get("redis_mode") or facts.get("server_mode")
    return Identity(facts.get("run_id"), facts.get("role"), facts.get("maxmemory_policy"), mode == "cluster")
