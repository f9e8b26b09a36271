"""From a URL to a live link (rule R15).

redis-py's own connection classes parse the URL and do TLS, authentication and the handshake.  After
that a connection's stream pair is only in the way of multiplexing: its transport is handed to a
`Link`.  Only this file and `handshake` know how redis-py keeps its transport.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Final, Protocol, final
from urllib.parse import urlsplit

from redis.asyncio.connection import Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .._log import report
from ..errors import ConfigurationError
from .failures import why
from .handshake import (
    RESP3,
    Identity,
    LoginError,
    UnixConnection,
    identify,
    load_scripts,
    log_in,
    log_in_by_resp3,
)
from .link import Link, notice_dead_peers
from .pipe import Entry

SCHEMES: Final = ("redis", "rediss", "unix", "valkey", "valkeys")

TLS_SCHEMES: Final = ("rediss", "valkeys")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_PORT: Final = re.compile(r"^[^:]*(:[0-9]{1,5})?$|\](:[0-9]{1,5})?$")

_RESP2: Final = 2

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
            if self._connection_class is UnixDomainSocketConnection:
                self._connection_class = UnixConnection
            for option in _POOL_OPTIONS:
                self._options.pop(option, None)
            self._protocol = int(self._options.pop("protocol", RESP3))
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
            "redis_connect_func": log_in_by_resp3 if protocol == RESP3 else log_in,
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
        try:
            async with asyncio.timeout(timeout):
                if self._protocol == RESP3:
                    try:
                        return await self._connect(timeout, on_failure, RESP3)
                    except LoginError as error:
                        refusal = error.reason
                connected = await self._connect(timeout, on_failure, _RESP2)
        except RedisError as error:
            if self._is_given_away_by(error):
                raise RedisConnectionError(f"{type(error).__name__} at login") from None
            raise
        if refusal is not None:
            self._fall_back(refusal)
        return connected

    def _is_given_away_by(self, error: Exception) -> bool:
        """Whether the server repeats the password: HELLO and AUTH have it among their arguments."""
        if type(error) in (RedisConnectionError, RedisTimeoutError):
            return False  # redis-py's own words, of a host or a time
        password = self._options.get("password")
        return bool(password and password in why(error))

    async def _connect(
        self, timeout: float, on_failure: Callable[[Entry, str], None], protocol: int
    ) -> tuple[Link, Identity]:
        connection = self._make(timeout, protocol)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            identity = await identify(connection)
            await load_scripts(connection)
            return _take_over(connection, on_failure, resp3=protocol == RESP3), identity
        finally:
            _discard(connection)

    def _fall_back(self, refusal: Exception) -> None:
        """Note that RESP2 was understood where RESP3 was not, and say so once."""
        if isinstance(refusal, ResponseError):
            self._protocol = _RESP2  # it said so; who only hung up is asked again next time
        if not self._told:
            self._told = True
            reason = type(refusal).__name__ if self._is_given_away_by(refusal) else why(refusal)
            report(
                logging.WARNING,
                "node %s does not speak RESP3 (%s), so it tells nobody of releases: waiters will poll",
                self.name,
                reason,
                node=self.name,
            )


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
