"""The handshake: redis-py's login, within bounds, and what is asked of a server before the first command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from redis.asyncio.connection import Connection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from .. import _scripts
from .failures import withheld
from .plain import facts_in, text

_SECTIONS: Final = ("server", "replication", "memory")
"""The sections of ``INFO`` that identify the server, and tell whether it forgets."""

RESP2: Final = 2

RESP3: Final = 3
"""The protocol in which a server can push messages: release notices (R13)."""

MAX_HANDSHAKE: Final = 2**20
"""Bytes that a server may send until its connection is ours: some ten kilobytes of `INFO`, and digests."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself in the handshake; None where `INFO` is denied."""

    run_id: str | None = None
    role: str | None = None
    eviction: str | None = None
    """Its ``maxmemory-policy``."""
    clustered: bool = False
    """Whether it is a server of a Redis Cluster, as far as it tells."""


def make_connection(
    connection_class: type[Connection], options: Mapping[str, Any], timeout: float, protocol: int
) -> Connection:
    """Make a connection object; nothing is sent.  Our settings win over a URL's `options`."""
    ours: dict[str, Any] = {
        "socket_connect_timeout": timeout,  # without it a frozen server hangs the handshake for ever
        "socket_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": protocol,
        "redis_connect_func": log_in_by_resp3 if protocol == RESP3 else log_in,
        "decode_responses": False,
    }
    return connection_class(**{**options, **ours})


@final
class UnixConnection(UnixDomainSocketConnection):
    """Connects, and no more: redis-py's own logs in at once, and again in `redis_connect_func`."""

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(path=self.path)


class LoginError(Exception):
    """The handshake failed, on a connection that was made."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


async def log_in_by_resp3(connection: Connection) -> None:
    """Log in, make sure of RESP3, and tell a failure here from those before and after it."""
    try:
        await log_in(connection)
        await _expect_resp3(connection)
    except Exception as error:
        raise LoginError(error) from error


async def log_in(connection: Connection) -> None:
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
    """Make sure of it: redis-py takes almost any answer to ``HELLO 3`` for consent.

    Redis 6.0 and 6.1 know no ``HELLO`` without a version.
    """
    await connection.send_command("HELLO", RESP3)
    facts = await connection.read_response(disconnect_on_error=False)
    if not isinstance(facts, dict) or facts.get(b"proto") != RESP3:
        raise ResponseError("it answers HELLO 3 and goes on in RESP2")


def discard(connection: Connection) -> None:
    """Drop whatever is left of a connection that was not taken over, without waiting."""
    writer = connection._writer  # noqa: SLF001
    connection._reader = connection._writer = None  # noqa: SLF001
    if writer is not None:
        writer.transport.abort()


async def identify(connection: Connection) -> Identity:
    """Ask the server for its identity; less is known where `INFO` is denied or renamed away."""
    facts: dict[bytes, bytes] = {}
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
    """Have the server know our scripts; raises its `ResponseError` when it refuses one."""
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
