"""Ways to a server from users' own clients, for a connection of ours (R17).

A client is read and never used: its pool, its connections and its event loop stay its owner's.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast, final

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import Connection
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.crc import key_slot
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from ..errors import ConfigurationError
from .addresses import Addresses
from .connection import ServerEndpoint, Way
from .failures import why
from .handshake import INSTEAD, RESP2, RESP3, PlainConnection, TlsConnection, ask_once, make_connection
from .redis_sentinel import Address, RedisSentinels
from .urls import OURS, Service

_OURS: Final[Mapping[object, type[Connection]]] = {
    **OURS,
    SentinelManagedConnection: PlainConnection,
    SentinelManagedSSLConnection: TlsConnection,
}

_BOOKKEEPING: Final = ("maint_", "oss_cluster_", "orig_")
"""The beginning of arguments by which connections report maintenance to their pool; ours has none."""

_DEFAULT_PROTOCOL: Final = inspect.signature(Redis.__init__).parameters["protocol"].default
"""The protocol of clients for which none was chosen: it is no wish, even where redis-py writes it down."""


class _OwnersEndpoint(ServerEndpoint):
    """An endpoint that is read from a client at each connect, so that rotated logins hold.

    Raises:
        ConfigurationError: the client's commands go another way than over redis-py's connections.
    """

    def __init__(self, name: str, address: tuple[object, ...], client: object, server: Any) -> None:
        protocol = server.connection_kwargs.get("protocol")
        wants_resp2 = protocol != _DEFAULT_PROTOCOL and str(protocol) == str(RESP2)
        super().__init__(name, address, RESP2 if wants_resp2 else RESP3)
        try:
            connection = make_connection(*self._read(server), 1.0, self._protocol)
        except (TypeError, ValueError, RedisError) as error:
            raise ConfigurationError(
                f"node {name}: its connection cannot be made: {self._shown(error)}"
            ) from None
        self._refuse_detour(client, "execute_command")
        self._refuse_detour(connection, "send_packed_command", "read_response")

    def _refuse_detour(self, instance: object, *methods: str) -> None:
        for method in methods:
            if not _is_redis_pys(instance, method):
                raise ConfigurationError(
                    f"node {self.name}: {type(instance).__name__}.{method} is not redis-py's own: {INSTEAD}"
                )

    def _read(self, server: Any) -> Way:
        """Read the way to a server from its pool, or from a Cluster's entry for it."""
        connection_class, options = _read(server)
        self.keep(options.get("password"))
        if (provider := options.get("credential_provider")) is not None:
            options["credential_provider"] = _Provider(provider, self)
        return connection_class, options

    def keep(self, secret: str | bytes | None) -> None:
        """Let no message repeat a password."""
        self._secrets = [secret.decode(errors="replace") if isinstance(secret, bytes) else secret or ""]


@final
class ClientEndpoint(_OwnersEndpoint):
    """The server of a `redis.asyncio.Redis`, however that was made; raises as its base does."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        pool = getattr(client, "connection_pool", None)
        if pool is None:
            raise ConfigurationError(
                f"a {type(client).__name__} cannot be a node: use one client per independent master"
            )
        super().__init__(*_name_and_address(pool), client, pool)
        self._refuse_detour(pool, "make_connection")
        if isinstance(pool, SentinelConnectionPool):
            if not pool.is_master:
                raise ConfigurationError(f"node {self.name}: its client leads to replicas; use master_for()")
            self._redis_sentinels = _Sentinels(pool, self._addresses)

    async def _way(self, timeout: float) -> Way:
        return self._read(self._client.connection_pool)


@final
class ClusterEndpoint(_OwnersEndpoint):
    """The server of a Redis Cluster that has the slot of the prefix; raises as its base does."""

    clustered = True

    def __init__(self, client: RedisCluster) -> None:
        self._manager = client.nodes_manager
        self._servers: list[Address] = []  # in the order in which they are asked
        hosts = sorted(self._clients_servers)
        name = "client:cluster:" + ",".join(f"{host}:{port}" for host, port in hosts)
        super().__init__(name, ("cluster", *hosts), client, self._any_server)

    @property
    def _any_server(self) -> Any:
        return next(iter(self._manager.startup_nodes.values()))

    @property
    def _clients_servers(self) -> list[Address]:
        return [(server.host, int(server.port)) for server in self._manager.startup_nodes.values()]

    async def _way(self, timeout: float) -> Way:
        connection_class, options = self._read(self._any_server)
        # redis-py's own function asks replicas to answer reads: a replica's answer is no vote.
        options = {**options, "redis_connect_func": None}
        host, port = await self._server_of_slot(connection_class, options, timeout)
        self._addresses.start()  # messages name its address, and not that of the server that was asked
        return connection_class, {**options, "host": host, "port": port}

    async def _server_of_slot(
        self, connection_class: type[Connection], options: Mapping[str, Any], timeout: float
    ) -> Address:
        """Ask the servers, in turns, which of them has the slot; together they have half of `timeout`.

        Each time the next one is the first: it may be frozen, or cut off with an outdated view.
        """
        reasons: list[str] = []
        self._servers = list(dict.fromkeys((*self._servers, *self._clients_servers)))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout / 2):
                for server in tuple(self._servers):
                    self._servers.append(self._servers.pop(0))
                    where = {**options, "host": server[0], "port": server[1]}
                    question = ask_once(connection_class, where, timeout, self._addresses, "CLUSTER SLOTS")
                    reasons.append(f"{server[0]}:{server[1]}: no answer in time")
                    try:
                        owner, servers = self._read_slots(await question, server)
                    except Exception as error:  # noqa: BLE001 (a peer that is none may raise anything here)
                        reasons[-1] = f"{server[0]}:{server[1]}: {self._shown(error)}"
                    else:
                        # Those that have left the Cluster are forgotten, unless the client names them.
                        kept = [one for one in self._servers if one in servers]
                        self._servers = list(dict.fromkeys((*kept, *servers)))
                        return owner
        raise RedisConnectionError(
            f"no server of the Redis Cluster reported where the slot of the prefix is: {'; '.join(reasons)}"
        )

    def _read_slots(self, reply: object, asked: Address) -> tuple[Address, set[Address]]:
        """Return the master of our slot, and all servers."""
        slot, owner, servers = key_slot(self.prefix), None, set[Address]()
        try:
            for first, last, *entries in cast("list[list[Any]]", reply):
                found = [self._address(entry, asked) for entry in entries]
                servers.update(found)
                if first <= slot <= last:
                    owner = found[0]
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise ResponseError("its reply to CLUSTER SLOTS is malformed") from error
        if owner is None:
            raise ResponseError("no server has the slot of the prefix")
        return owner, servers

    def _address(self, entry: list[Any], asked: Address) -> Address:
        host, port = entry[:2]
        # A server that does not know its own name leaves it out.
        name = host.decode() if host else asked[0]
        return self._manager.remap_host_port(name, port)


@final
class _Sentinels(RedisSentinels):
    """The Sentinels of a user's `Sentinel`, asked over connections of ours; but its own way goes first."""

    def __init__(self, pool: SentinelConnectionPool, addresses: Addresses) -> None:
        self._sentinel: Sentinel = pool.sentinel_manager
        connection_class, options = _read(self._sentinel.sentinels[0].connection_pool)
        login = {name: options[name] for name in ("username", "password") if options.get(name)}
        service = Service(pool.service_name, _hosts_of(self._sentinel), login)
        super().__init__(service, connection_class, options, addresses)

    async def master(self, timeout: float) -> Address:
        """As in `RedisSentinels`."""
        host, port = await self._asked(timeout)
        return getattr(self._sentinel, "_force_master_ip", None) or host, port

    async def _asked(self, timeout: float) -> Address:
        if _is_redis_pys(self._sentinel, "discover_master"):
            return await super().master(timeout)
        try:
            async with asyncio.timeout(timeout / 2):
                return cast(Address, await self._sentinel.discover_master(self._name))
        except Exception as error:
            raise RedisConnectionError(f"{type(self._sentinel).__name__}: {why(error)}") from error


@final
class _Provider(CredentialProvider):
    """A user's credential provider; the endpoint notes that it is asked, and what it has answered."""

    def __init__(self, provider: CredentialProvider, endpoint: _OwnersEndpoint) -> None:
        self._provider = provider
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def get_credentials(self) -> Any:
        """As in redis-py before 5.1."""
        self._endpoint.at_provider = True
        return self._given(self._provider.get_credentials())

    async def get_credentials_async(self) -> Any:
        """As in redis-py."""
        self._endpoint.at_provider = True
        return self._given(await self._provider.get_credentials_async())

    def _given(self, credentials: Any) -> Any:
        self._endpoint.keep(credentials[-1])
        self._endpoint.at_provider = False
        return credentials


def _read(server: Any) -> tuple[type[Connection], dict[str, Any]]:
    """Read the connection class and the arguments of a pool, or of a Cluster's entry for a server."""
    connection_class = _OURS.get(server.connection_class, server.connection_class)
    options = {
        name: value
        for name, value in server.connection_kwargs.items()
        # The protocol is the endpoint's, and ours reads what comes behind the login.
        if name not in ("protocol", "parser_class") and not name.startswith(_BOOKKEEPING)
    }
    if connection_class is not server.connection_class:
        options.pop("connection_pool", None)  # by which redis-py's own class asks Sentinels
    return connection_class, options


def _is_redis_pys(instance: object, method: str) -> bool:
    """Whether a method is redis-py's own, also where a tracer has put its own in place of it."""
    if (own := vars(instance).get(method)) is not None:
        return str(getattr(inspect.unwrap(own), "__module__", "")).partition(".")[0] == "redis"
    definer = next((base for base in type(instance).__mro__ if method in vars(base)), object)
    return definer.__module__.partition(".")[0] == "redis"


def _hosts_of(sentinel: Sentinel) -> tuple[Address, ...]:
    every = [one.connection_pool.connection_kwargs for one in sentinel.sentinels]
    return tuple((options["host"], int(options["port"])) for options in every)


def _name_and_address(pool: Any) -> tuple[str, tuple[object, ...]]:
    """Return a name for messages, and what tells the node apart; see `Endpoint`."""
    if isinstance(pool, SentinelConnectionPool):
        hosts = frozenset(_hosts_of(pool.sentinel_manager))
        return f"client:sentinel:{pool.service_name}", (hosts, pool.service_name)
    options = pool.connection_kwargs
    if path := options.get("path"):
        return f"client:unix://{path}", (path,)
    host, port = options.get("host", "localhost"), int(options.get("port", 6379))
    return f"client:{host}:{port}", (host, port)
