"""From a URL to a live link (rule R15).

redis-py's own connection classes parse the URL and do TLS, authentication and the handshake.  After
that a connection's stream pair is only in the way of multiplexing: its transport is handed to a
`Link`.  Only this file and `handshake` know how redis-py keeps its transport.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol, final

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .._log import report
from .addresses import Addresses
from .failures import why
from .handshake import (
    FULL,
    RESP2,
    RESP3,
    Identity,
    LoginError,
    discard,
    identify,
    load_scripts,
    make_connection,
)
from .link import Link, notice_dead_peers
from .pipe import Fail
from .redis_sentinel import RedisSentinels
from .urls import NodeUrl

RESP3_AGAIN: Final = 0.25
"""The share of a `connect_timeout` in which a peer that hung up at ``HELLO 3`` is asked once more."""

_ABOUT_HELLO: Final = re.compile(
    r"hello|proto|permission|unknown|un(?:supported|recogni[sz]ed)", re.IGNORECASE
)


class Endpoint(Protocol):
    """The address of a node, and the way to connect to it."""

    name: str
    address: tuple[object, ...]
    """Tells two nodes apart: database numbers and credentials do not make a second server."""

    async def connect(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails."""

    def look_elsewhere(self) -> None:
        """Use another address of the name for the next connection, if there is one."""


@final
class UrlEndpoint:
    """The address of a node and its login, from its URL.

    Raises:
        ConfigurationError: when the URL cannot be used; the message holds no secret.
    """

    def __init__(self, url: str) -> None:
        read = NodeUrl(url)
        self.name = read.name
        self.address = read.address
        self._options = read.options
        self._connection_class = read.connection_class
        self._protocol = read.protocol
        self._addresses = Addresses()
        self._redis_sentinels: RedisSentinels | None = None
        login: Mapping[str, str] = {}
        if read.service is not None:
            self._redis_sentinels = RedisSentinels(
                read.service, read.connection_class, read.options, self._addresses
            )
            login = read.service.login
        self._secrets = [one for one in (read.options.get("password"), login.get("password")) if one]
        self._told = False

    async def connect(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails.

        A server or proxy that refuses to log in by RESP3 is asked again, at once, by RESP2.
        """
        self._addresses.start()
        try:
            async with asyncio.timeout(timeout):
                connected = await self._log_in(timeout, on_failure)
        except Exception as error:
            self._addresses.failed()
            # An error that repeats the password is replaced, and not chained.
            if isinstance(error, RedisError) and self._is_given_away_by(error):
                raise RedisConnectionError(f"{type(error).__name__} at login") from None
            if tried := self._addresses.tried:
                error.add_note(f"at {tried}")
            raise
        self._addresses.succeeded()
        return connected

    async def _log_in(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        if self._protocol == RESP2:
            return await self._connect(timeout, on_failure, RESP2)
        try:
            return await self._connect(timeout, on_failure, RESP3)
        except LoginError as error:
            refusal = error.reason
            # At its `maxclients`: RESP2 would be refused as well, perhaps without this reason.
            if FULL in str(refusal):
                raise refusal from error
        link, identity = await self._connect(timeout, on_failure, RESP2)
        if _may_pass(refusal):
            # It answers now.  It may only have been away at that moment: try RESP3 once more, or this
            # connection has no notifications for as long as it lives.
            try:
                async with asyncio.timeout(timeout * RESP3_AGAIN):
                    by_resp3 = await self._connect(timeout, on_failure, RESP3)
            except asyncio.CancelledError:
                link.give_up("connecting was cancelled")
                raise
            except Exception as error:  # noqa: BLE001 (whatever it is, there is a connection that works)
                refusal = error.reason if isinstance(error, LoginError) else error
            else:
                link.give_up("it speaks RESP3 after all")
                return by_resp3
        link.resp3_in_doubt = _may_pass(refusal)
        self._fall_back(refusal)
        return link, identity

    def look_elsewhere(self) -> None:
        """As in `Endpoint`."""
        self._addresses.failed()

    def _is_given_away_by(self, error: Exception) -> bool:
        """Whether the server repeats the password: HELLO and AUTH have it among their arguments."""
        if type(error) in (RedisConnectionError, RedisTimeoutError):
            return False  # redis-py's own text, about a host or a timeout
        return any(secret in why(error) for secret in self._secrets)

    async def _connect(self, timeout: float, on_failure: Fail, protocol: int) -> tuple[Link, Identity]:
        options = self._options
        if self._redis_sentinels is not None:
            host, port = await self._redis_sentinels.master(timeout)
            options = options | {"host": host, "port": port}
            self._addresses.start()  # messages name the master's address, and not the Redis Sentinel's
        connection = make_connection(self._connection_class, options, timeout, protocol, self._addresses)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            identity = await identify(connection)
            await load_scripts(connection)
            link = _take_over(connection, on_failure, resp3=protocol == RESP3)
        finally:
            discard(connection)
        if self._redis_sentinels is not None:
            self._redis_sentinels.follow(link, (host, port), timeout)
        return link, identity

    def _fall_back(self, refusal: Exception) -> None:
        """Note that the server understands RESP2 and not RESP3, and log that once."""
        # It said so itself.  A server that only hung up is asked again at the next connection.
        if isinstance(refusal, ResponseError) and not _may_pass(refusal):
            self._protocol = RESP2
        if not self._told:
            self._told = True
            reason = type(refusal).__name__ if self._is_given_away_by(refusal) else why(refusal)
            report(
                logging.WARNING,
                "node %s does not speak RESP3 (%s), so it cannot push release notifications: waiters "
                "will poll",
                self.name,
                reason,
                node=self.name,
            )


def _may_pass(refusal: Exception) -> bool:
    """Whether the refusal may be temporary: a hang-up, or an error of a proxy that has lost its server."""
    if isinstance(refusal, ResponseError):
        return _ABOUT_HELLO.search(str(refusal)) is None
    return isinstance(refusal, (RedisConnectionError, OSError))


async def run_ids_behind(endpoint: Endpoint, timeout: float, count: int) -> frozenset[str]:
    """Connect `count` times, to other addresses of the name if it has some; return the masters' run ids.

    The server may refuse further connections: then fewer are found.
    """
    found: set[str] = set()
    with suppress(Exception):
        for _ in range(count):
            endpoint.look_elsewhere()
            link, identity = await endpoint.connect(timeout, lambda *_: None)
            link.give_up("it was only to tell its run_id")
            if identity.run_id is not None and identity.role in (None, "master"):
                found.add(identity.run_id)
    return frozenset(found)


def _take_over(connection: Connection, on_failure: Fail, *, resp3: bool) -> Link:
    """Take the transport of a connection whose handshake is done; every reply has been read."""
    writer = connection._writer  # noqa: SLF001
    assert writer is not None, "connected"
    # A stream writer closes its transport when it is collected: the link keeps it alive.
    link = Link(writer.transport, on_failure, keep=writer, resp3=resp3)
    notice_dead_peers(writer.transport)
    writer.transport.set_protocol(link)
    connection._reader = connection._writer = None  # noqa: SLF001
    return link
