"""From the address of a server to a live link (rules R15, R17).

redis-py's own connection classes do TLS, authentication and the handshake, whether a URL names the server or
a user's client knows it.  After that a connection's stream pair is only in the way of multiplexing: its
transport is handed to a `Link`.  Only this file and `handshake` know how redis-py keeps its transport.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from contextvars import Context
from typing import Any, Final, Protocol, TypeAlias, final

from redis.asyncio.connection import Connection
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .._log import report
from .addresses import Addresses
from .failures import why
from .handshake import (
    RESP2,
    RESP3,
    HungUpError,
    Identity,
    LoginError,
    discard,
    introduce,
    make_connection,
)
from .link import Link, notice_dead_peers
from .pipe import Fail
from .redis_sentinel import RedisSentinels
from .urls import NodeUrl

_TIMED_OUT: Final = (TimeoutError, RedisTimeoutError)

_ABOUT_HELLO: Final = re.compile(
    r"hello|proto|permission|unknown|un(?:supported|recogni[sz]ed)", re.IGNORECASE
)


Way: TypeAlias = "tuple[type[Connection], Mapping[str, Any]]"
"""A connection class, and the arguments for it."""


class Endpoint(Protocol):
    """The address of a node, and the way to connect to it."""

    name: str
    address: tuple[object, ...]
    """Tells two nodes apart: database numbers and credentials do not make a second server."""
    clustered: bool
    """Whether it leads to one slot of a Redis Cluster, on whichever server that is."""
    prefix: bytes
    """The beginning of all keys: that of a Redis Cluster has the slot."""

    async def connect(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails."""

    def look_elsewhere(self) -> None:
        """Use another address of the name for the next connection, if there is one."""


class ServerEndpoint:
    """The common part of endpoints of real servers: a subclass knows the way to its server."""

    clustered = False
    prefix = b""

    def __init__(self, name: str, address: tuple[object, ...], protocol: int) -> None:
        self.name = name
        self.address = address
        self._protocol = protocol
        self._addresses = Addresses()
        self._redis_sentinels: RedisSentinels | None = None
        self._secrets: list[str] = []  # the passwords of the last login, which no message may repeat
        self.at_provider = False
        """Whether the login waits for a user's credential provider, or ended there."""
        # A connecting that was cancelled last, and may not have ended.
        self._ending: asyncio.Task[tuple[Link, Identity]] | None = None
        self._told = False

    @abstractmethod
    async def _way(self, timeout: float) -> Way:
        """Return how to connect now."""

    async def connect(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        """Connect, log in, load the scripts; raises `OSError` or `RedisError` when that fails.

        A server or proxy that refuses to log in by RESP3 is asked again, at once, by RESP2.
        """
        self._addresses.start()
        self.at_provider = False
        try:
            connected = await self._apart(self._log_in(timeout, on_failure), timeout)
        except Exception as error:
            self._addresses.failed()
            # An error that repeats the password is replaced, and not chained.
            if self._is_given_away_by(error):
                raise RedisConnectionError(f"{type(error).__name__} at login") from None
            if tried := "its credential provider" if self.at_provider else self._addresses.tried:
                error.add_note(f"at {tried}")
            raise
        self._addresses.succeeded()
        return connected

    async def _apart(
        self, connecting: Coroutine[Any, Any, tuple[Link, Identity]], timeout: float
    ) -> tuple[Link, Identity]:
        """Connect in a task of its own, for others' code runs in it: redis-py's, a user's.

        So a cancellation that comes from there, and one of ours that is swallowed there, end in that task.
        """
        if self._ending is not None and not self._ending.done():
            connecting.close()
            raise RedisConnectionError("connecting was cancelled before, and has not ended since")
        name = f"aioredlock_ng connects to {self.name}"
        task = Context().run(asyncio.create_task, connecting, name=name)
        try:
            await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            await self._end(task, timeout)
            raise
        if not task.done():
            await self._end(task, timeout)
            raise TimeoutError
        if task.cancelled():
            raise RedisConnectionError("other code cancelled connecting")
        return task.result()

    async def _end(self, connecting: asyncio.Task[tuple[Link, Identity]], timeout: float) -> None:
        """Cancel a connecting that is not wanted any more, and leave it alone if it does not end in time."""
        self._ending = connecting
        connecting.add_done_callback(_drop)
        connecting.cancel()
        await asyncio.wait((connecting,), timeout=timeout)

    async def _log_in(self, timeout: float, on_failure: Fail) -> tuple[Link, Identity]:
        if self._protocol == RESP2:
            return await self._connect(timeout, on_failure, RESP2)
        try:
            return await self._connect(timeout, on_failure, RESP3)
        except LoginError as error:
            refusal = error.reason
            # Without credentials RESP2 would fail, too.
            if self.at_provider:
                raise refusal from error
        try:
            link, identity = await self._connect(timeout, on_failure, RESP2)
        except HungUpError as error:
            # It may refuse any connection, and has said why only the first time.
            heard = _may_pass(refusal) and not isinstance(refusal, HungUpError)
            raise refusal if heard else error from None
        link.resp3_in_doubt = _may_pass(refusal)
        self._fall_back(refusal)
        return link, identity

    def look_elsewhere(self) -> None:
        """As in `Endpoint`."""
        self._addresses.failed()

    def _is_given_away_by(self, error: Exception) -> bool:
        """Whether the server repeats the password: HELLO and AUTH have it among their arguments."""
        if type(error) in (RedisConnectionError, RedisTimeoutError, HungUpError):
            return False  # redis-py's own text, about a host or a timeout, or ours
        return any(secret and secret in why(error) for secret in self._secrets)

    def _shown(self, error: Exception) -> str:
        """Return the reason of an error, unless that repeats the password."""
        return type(error).__name__ if self._is_given_away_by(error) else why(error)

    async def _connect(self, timeout: float, on_failure: Fail, protocol: int) -> tuple[Link, Identity]:
        connection_class, options = await self._way(timeout)
        if self._redis_sentinels is not None:
            host, port = await self._redis_sentinels.master(timeout)
            options = {**options, "host": host, "port": port}
            self._addresses.start()  # messages name the master's address, and not the Redis Sentinel's
        connection = make_connection(connection_class, options, timeout, protocol, self._addresses)
        try:
            if isinstance(connection, SentinelManagedConnection):  # its `connect` would ask its own Sentinels
                await connection.connect_to((connection.host, connection.port))  # type: ignore[no-untyped-call]
            else:
                await connection.connect()  # type: ignore[no-untyped-call]
            identity = await introduce(connection, resp3=protocol == RESP3)
            link = _take_over(connection, on_failure, resp3=protocol == RESP3)
        finally:
            discard(connection)
        if self._redis_sentinels is not None:
            self._redis_sentinels.follow(link, (host, port), timeout)
        return link, identity

    def _fall_back(self, refusal: Exception) -> None:
        """Note that the connection has RESP2 and not RESP3, and log that once."""
        # It said so itself.  A server that only hung up is asked again at the next connection.
        if isinstance(refusal, ResponseError) and not _may_pass(refusal):
            self._protocol = RESP2
        if not self._told:
            self._told = True
            reason = self._shown(refusal)
            if isinstance(refusal, _TIMED_OUT):
                problem = "is slow: no answer to HELLO 3 in time"
            elif _may_pass(refusal):
                problem = f"did not log in by RESP3 ({reason})"
            else:
                problem = f"does not speak RESP3 ({reason})"
            report(
                logging.WARNING,
                "node %s %s, so it cannot push release notifications: waiters will poll",
                self.name,
                problem,
                node=self.name,
            )


@final
class UrlEndpoint(ServerEndpoint):
    """The address of a node and its login, from its URL.

    Raises:
        ConfigurationError: when the URL cannot be used; the message holds no secret.
    """

    def __init__(self, url: str) -> None:
        read = NodeUrl(url)
        super().__init__(read.name, read.address, read.protocol)
        self._fixed: Way = read.connection_class, read.options
        login: Mapping[str, str] = {}
        if read.service is not None:
            self._redis_sentinels = RedisSentinels(read.service, *self._fixed, self._addresses)
            login = read.service.login
        self._secrets = [one for one in (read.options.get("password"), login.get("password")) if one]

    async def _way(self, timeout: float) -> Way:
        return self._fixed


def _drop(connecting: asyncio.Task[tuple[Link, Identity]]) -> None:
    # It was connected in the moment in which it was cancelled.
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[0].give_up("connecting was cancelled")


def _may_pass(refusal: Exception) -> bool:
    """Whether it may be temporary: slowness, a hang-up, an error of a proxy that has lost its server."""
    if isinstance(refusal, ResponseError):
        return _ABOUT_HELLO.search(str(refusal)) is None
    return isinstance(refusal, (RedisConnectionError, OSError, *_TIMED_OUT))


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
