"""Sends commands to a server through a user's own client (R17)."""

from __future__ import annotations

import asyncio
import codecs
import functools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar, final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError, ResponseError

from ..errors import ConfigurationError
from .calls import AT_ONCE
from .failures import withheld
from .plain import facts_in, plain

_ROUTED: Final = (b"EVALSHA", b"EVAL", b"SET", b"GET", b"DEL")
"""Commands with keys, for which redis-py itself finds the server: it follows MOVED and ASK."""

MIN_CONNECTIONS: Final = 2
"""Connections that the pool of a client must have at least: half of them are for calls (R17)."""

MAX_SEARCHES: Final = 64
"""Searches by SCAN that may go on at once on a Cluster; the oldest of more ends with an error."""

P = ParamSpec("P")
T = TypeVar("T")


def users_code(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Convert a cancellation by other code into an error of the call, so that our task goes on.

    A client may wait for a task of the user's, such as one that renews its password, and that task may be
    cancelled.  A cancellation of our own task is counted by it.
    """

    @functools.wraps(call)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        task = asyncio.current_task()
        assert task is not None, "called from a coroutine that a task runs"
        try:
            return await call(*args, **kwargs)
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            raise RedisError("other code cancelled what the client was waiting for") from error

    return guarded


@final
class ClientCaller:
    """Calls through a `redis.asyncio.Redis`, however it was made."""

    def __init__(self, client: Redis) -> None:
        if not hasattr(client, "connection_pool"):
            raise ConfigurationError(
                f"a {type(client).__name__} cannot be a node: use one client per independent master"
            )
        self._client = client
        self.name, self.address = name_and_address(client.connection_pool)
        refuse_encoding(self.name, client.get_encoder())  # type: ignore[no-untyped-call]
        self.at_once = calls_at_once(self.name, client.connection_pool.max_connections)

    @users_code
    async def call(self, words: tuple[bytes, ...], *, raw: bool = False) -> Any:
        """Call the client; `raw` for answers that redis-py would parse into types of its own.

        It finds its parser by the verb as text, so that a verb of bytes gets the answer as it came.
        """
        verb, *arguments = words
        return await self._client.execute_command(verb if raw else verb.decode(), *arguments)  # type: ignore[no-untyped-call]

    @users_code
    async def drop_idle(self) -> None:
        """Close the connections that lie idle in the pool: the next calls connect again."""
        await self._client.connection_pool.disconnect(inuse_connections=False)


@final
class ClusterCaller:
    """Calls through a `redis.asyncio.RedisCluster`, to the server that has the one slot of all our keys."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        hosts = sorted((node.host, node.port) for node in client.nodes_manager.startup_nodes.values())
        self.name = "client:cluster:" + ",".join(f"{host}:{port}" for host, port in hosts)
        self.address = ("cluster", *hosts)
        refuse_encoding(self.name, client.get_encoder())
        self.at_once = calls_at_once(self.name, client.connection_kwargs["max_connections"])
        self.prefix = b""
        """The beginning of all keys, with a hash tag."""
        self._searches: dict[bytes, str] = {}
        """The server of each cursor, for searches that go on."""

    @users_code
    async def call(self, words: tuple[bytes, ...], *, raw: bool = False) -> Any:
        """Call the client, or for commands without a key the server of our slot, whose answers are raw."""
        verb, *arguments = words
        if verb in _ROUTED:
            return await self._client.execute_command(verb.decode(), *arguments)
        await self._client.initialize()
        # Typed for text; a prefix that is no text has its slot all the same.
        server: Any = self._client.get_node_from_key(self.prefix)  # type: ignore[arg-type]
        if verb != b"SCAN":
            return await server.execute_command(verb, *arguments)
        return await self._scan(server, arguments)

    async def drop_idle(self) -> None:
        """Leave the pools as they are: redis-py itself finds the servers again after an error."""

    async def _scan(self, server: Any, arguments: list[bytes]) -> Any:
        """Continue a search on its own server: another one would not know the cursor, and skip keys."""
        cursor = arguments[0]
        if cursor != b"0" and self._searches.pop(cursor, None) != server.name:
            raise ResponseError("the slot of the prefix went to another server during the search")
        reply = await server.execute_command(b"SCAN", *arguments)
        if isinstance(reply, list) and reply and reply[0] not in (b"0", "0"):
            following = reply[0].encode() if isinstance(reply[0], str) else bytes(reply[0])
            while len(self._searches) >= MAX_SEARCHES:
                del self._searches[next(iter(self._searches))]
            self._searches[following] = server.name
        return reply


def calls_at_once(name: str, connections: int) -> int:
    """Return how many calls a client may make at once through a pool of `connections`: half as many (R17).

    The others are for checks of the server, for calls that take too long, and for other uses of the client.

    Raises:
        ConfigurationError: there is one connection, and none is left to check the server beside a call.
    """
    if connections < MIN_CONNECTIONS:
        raise ConfigurationError(
            f"node {name}: the pool of this client has max_connections={connections}: give it "
            f"{MIN_CONNECTIONS} or more, since its server is checked while a call is under way"
        )
    return min(AT_ONCE, connections // 2)


def refuse_encoding(name: str, encoder: Any) -> None:
    """Refuse a client that decodes replies, but not as UTF-8: holder labels and names of locks are that.

    Raises:
        ConfigurationError: names the client, and says what to do.
    """
    try:
        utf8 = codecs.lookup(encoder.encoding).name == "utf-8"
    except LookupError:  # there is no such encoding
        utf8 = False
    if encoder.decode_responses and not utf8:
        raise ConfigurationError(
            f"node {name}: this client decodes replies as {encoder.encoding}, and labels of holders are "
            "UTF-8: give it decode_responses=False, or encoding='utf-8'"
        )


async def ping(caller: ClientCaller | ClusterCaller) -> None:
    """Ask for a sign of life; an error is one, too, if PING is not allowed or the server cannot save."""
    try:
        await caller.call((b"PING",))
    except ResponseError as error:
        if not withheld(error, "PING") and not str(error).startswith("MISCONF"):
            raise


async def facts_of(caller: ClientCaller | ClusterCaller) -> dict[bytes, bytes]:
    """Ask a server for its identity and its eviction policy; empty where INFO is denied or missing."""
    facts: dict[bytes, bytes] = {}
    with suppress(ResponseError):
        for section in (b"server", b"memory"):
            facts |= facts_in(plain(await caller.call((b"INFO", section), raw=True)))
    return facts


def name_and_address(pool: Any) -> tuple[str, tuple[object, ...]]:
    """Return the name of a client with this pool, for messages, and what tells it apart from other nodes."""
    if service := getattr(pool, "service_name", None):  # Redis Sentinel tells the address at each connect
        return f"client:sentinel:{service}", (
            "sentinel",
            id(getattr(pool, "sentinel_manager", pool)),
            service,
        )
    options = pool.connection_kwargs
    if path := options.get("path"):
        return f"client:unix://{path}", (path,)
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    if options.get("server") is not None:  # fakeredis: the server is an object
        return f"client:fake:{host}:{port}", ("fake", id(options["server"]))
    return f"client:{host}:{port}", (host, port)
