"""From a URL to a live link (rule R15).

redis-py's own connection classes parse the URL and do TLS, authentication and the handshake.  After
that a connection's stream pair is only in the way of multiplexing: its transport is handed to a
`Link`.  This file is the only one that knows how redis-py keeps its transport.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, final
from urllib.parse import urlsplit

from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from .. import _scripts
from .._log import report
from ..errors import ConfigurationError
from .failures import why
from .link import Link, notice_dead_peers
from .pipe import Entry

SCHEMES: Final = ("redis", "rediss", "unix", "valkey", "valkeys")

TLS_SCHEMES: Final = ("rediss", "valkeys")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_PORT: Final = re.compile(r"^[^:]*(:[0-9]{1,5})?$|\](:[0-9]{1,5})?$")

_SECTIONS: Final = ("server", "replication", "memory")
"""Of a server's ``INFO``: what tells who it is, and whether it forgets."""

_RESP3: Final = 3
"""The protocol in which a connection can be told what nobody has asked for: release notices (R13)."""

_RESP2: Final = 2

MAX_HANDSHAKE: Final = 2**20
"""Bytes that a server may send until its connection is ours: some ten kilobytes of `INFO`, and digests."""

_POOL_OPTIONS: Final = ("connection_class", "max_connections", "timeout")
"""What a redis-py URL may say about a pool; there is no pool here."""


def masked(url: str) -> str:
    """Return `url` without user, password and query; what cannot be told apart is left out."""
    scheme, separator, _ = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return "<not a URL>" if "@" in url or "?" in url else ascii(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://<not an address>"
    # Where an unescaped '?', '/' or '#' of a password ends the address too early, its '@' comes later.
    options = [part for part in parts.query.split("&") if not part.startswith(("password=", "username="))]
    cut_short = any("@" in part for part in (parts.path, parts.fragment, *options))
    if cut_short or not (parts.hostname or parts.path):
        return f"{scheme}://<not an address>"
    host = parts.netloc.rpartition("@")[2]
    if not _PORT.search(host):  # what stands where the port should be may be a password
        host = parts.hostname or ""
    return f"{scheme}://{host}{parts.path}"


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself in the handshake; None where `INFO` is denied."""

    run_id: str | None = None
    role: str | None = None
    eviction: str | None = None
    """Its ``maxmemory-policy``."""


class Endpoint(Protocol):
    """Where a node is, and how to get a connection to it."""

    name: str
    address: tuple[object, ...]
    """What tells two nodes apart: database numbers and credentials do not make a second server."""

    async def connect(
        self, timeout: float, on_failure: Callable[[Entry, str], None]
    ) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails."""


@final
class UrlEndpoint:
    """Where a node is and how to log in there, from its URL.

    Raises:
        ConfigurationError: when the URL cannot be used; the message holds no secret.
    """

    def __init__(self, url: str) -> None:
        self.name = masked(url)
        scheme = url.partition("://")[0]
        if scheme not in SCHEMES:
            hint = "" if "://" in url or self.name[0] == "<" else f"; did you mean redis://{url}?"
            schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigurationError(f"node {self.name}: unknown scheme, expected one of {schemes}{hint}")
        try:
            parts = urlsplit(url)
            address = (parts.path,) if scheme == "unix" else (parts.hostname, parts.port or 6379)
            self._options: dict[str, Any] = dict(
                parse_url(scheme.replace("valkey", "redis") + url[len(scheme) :])
            )
            if scheme in TLS_SCHEMES and self._options.get("ssl_cert_reqs") != "none":
                self._options.setdefault("ssl_check_hostname", True)  # redis-py 5 does not unless told
            self._connection_class = self._options.get("connection_class", Connection)
            for option in _POOL_OPTIONS:
                self._options.pop(option, None)
            self._protocol = int(self._options.pop("protocol", _RESP3))
            self._make(1.0, self._protocol)
        except (ValueError, TypeError, RedisError):
            # The parser's own message may quote the part of the URL that holds the password.
            raise ConfigurationError(
                f"node {self.name}: not a valid node URL; mind the port, and %-escape what is special"
            ) from None
        if not address[0]:
            what = "path" if scheme == "unix" else "host"
            raise ConfigurationError(f"node {self.name}: the URL names no {what}")
        self.address: tuple[object, ...] = address
        self._told = False

    def _make(self, timeout: float, protocol: int) -> Connection:
        """Make a connection object; nothing is sent.  Our settings win over the URL's."""
        options = self._options | {
            "socket_connect_timeout": timeout,  # without it a frozen server hangs the handshake for ever
            "socket_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            "health_check_interval": 0,
            "protocol": protocol,
            "redis_connect_func": _log_in if protocol == _RESP3 else _log_in_by_resp2,
            "decode_responses": False,
        }
        connection: Connection = self._connection_class(**options)
        return connection

    async def connect(
        self, timeout: float, on_failure: Callable[[Entry, str], None]
    ) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails.

        A server or proxy that refuses to log in by RESP3 is asked again, at once, by RESP2.
        """
        refusal: Exception | None = None
        async with asyncio.timeout(timeout):
            if self._protocol == _RESP3:
                try:
                    return await self._connect(timeout, on_failure, _RESP3)
                except _LoginError as error:
                    refusal = error.reason
            connected = await self._connect(timeout, on_failure, _RESP2)
        if refusal is not None:
            self._fall_back(refusal)
        return connected

    async def _connect(
        self, timeout: float, on_failure: Callable[[Entry, str], None], protocol: int
    ) -> tuple[Link, Identity]:
        connection = self._make(timeout, protocol)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            identity = await _identify(connection)
            await _load_scripts(connection)
            return _take_over(connection, on_failure, resp3=protocol == _RESP3), identity
        finally:
            _discard(connection)

    def _fall_back(self, refusal: Exception) -> None:
        """Note that RESP2 was understood where RESP3 was not, and say so once."""
        if isinstance(refusal, ResponseError):
            self._protocol = _RESP2  # it said so; who only hung up is asked again next time
        if not self._told:
            self._told = True
            reason = why(refusal).partition(", with args beginning with")[0]
            password = self._options.get("password")
            if password and password in reason:  # HELLO has it among its arguments
                reason = type(refusal).__name__
            report(
                logging.WARNING,
                "node %s does not speak RESP3 (%s), so it tells nobody of releases: waiters will poll",
                self.name,
                reason,
            )


class _LoginError(Exception):
    """The handshake failed, on a connection that was made."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


async def _log_in(connection: Connection) -> None:
    """Log in, make sure of RESP3, and tell a failure here from those before and after it."""
    try:
        await _log_in_by_resp2(connection)
        await _expect_resp3(connection)
    except Exception as error:
        raise _LoginError(error) from error


async def _log_in_by_resp2(connection: Connection) -> None:
    """Do what redis-py does when connected, within bounds."""
    _bound(connection)
    await connection.on_connect()


def _bound(connection: Connection) -> None:
    """Read no more from a connection in its handshake than one of a Redis server can bring."""
    reader, left = connection._reader, MAX_HANDSHAKE  # noqa: SLF001
    assert reader is not None, "connected"
    read = reader.read

    async def bounded(n: int = -1) -> bytes:
        nonlocal left
        data = await read(n)
        left -= len(data)
        if left < 0:
            raise RedisConnectionError(f"more than {MAX_HANDSHAKE} bytes came in the handshake")
        return data

    reader.read = bounded  # type: ignore[method-assign]


async def _expect_resp3(connection: Connection) -> None:
    """Make sure of it: redis-py takes almost any answer to ``HELLO 3`` for consent."""
    await connection.send_command("HELLO")
    facts = await connection.read_response(disconnect_on_error=False)
    if not isinstance(facts, dict) or facts.get(b"proto") != _RESP3:
        raise ResponseError("it answers HELLO 3 and goes on in RESP2")


async def _identify(connection: Connection) -> Identity:
    """Ask the server who it is.  A user without the right to ask is fine, it is only told less."""
    facts: dict[bytes, bytes] = {}
    for section in _SECTIONS:
        await connection.send_command("INFO", section)
    for _ in _SECTIONS:
        try:
            answer = await connection.read_response(disconnect_on_error=False)
        except NoPermissionError:
            continue
        for line in answer.splitlines() if isinstance(answer, bytes) else ():
            name, _, value = line.partition(b":")
            facts[name] = value

    def fact(name: bytes) -> str | None:
        value = facts.get(name)
        return None if value is None else value.decode(errors="replace")

    return Identity(fact(b"run_id"), fact(b"role"), fact(b"maxmemory_policy"))


async def _load_scripts(connection: Connection) -> None:
    for script in _scripts.ALL:
        await connection.send_command("SCRIPT LOAD", script.source)
    refusal: ResponseError | None = None
    for _ in _scripts.ALL:
        try:
            await connection.read_response(disconnect_on_error=False)
        except ResponseError as error:  # every answer is read before the first refusal is raised
            refusal = error
    if refusal is not None:
        raise refusal


def _take_over(connection: Connection, on_failure: Callable[[Entry, str], None], *, resp3: bool) -> Link:
    """Take the transport of a connection whose handshake is done; every reply has been read."""
    writer = connection._writer  # noqa: SLF001
    assert writer is not None, "connected"
    # A stream writer closes its transport when it is collected: the link keeps it alive.
    link = Link(writer.transport, on_failure, keep=writer, resp3=resp3)
    notice_dead_peers(writer.transport)
    writer.transport.set_protocol(link)
    connection._reader = connection._writer = None  # noqa: SLF001
    return link


def _discard(connection: Connection) -> None:
    """Drop whatever is left of a connection that was not taken over, without waiting."""
    writer = connection._writer  # noqa: SLF001
    connection._reader = connection._writer = None  # noqa: SLF001
    if writer is not None:
        writer.transport.abort()
