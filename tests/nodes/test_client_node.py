"""Nodes that users' own clients lead to: whose login and pool it is, what cannot be taken (R17)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import fakeredis
import pytest
import redis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection
from redis.asyncio.sentinel import Sentinel
from redis.credentials import CredentialProvider

from aioredlock_ng import ConfigurationError, LockManager, LockTakenError
from aioredlock_ng._node import NodeState
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.local_nodes import initialise
from tests.nodes.tools import listening, running, state, up, works
from tests.servers import ask, eventually, lock_keys

PASSWORD = "s3cret-pass"
OTHER_PASSWORD = "0ther-pass"
PREFIX = "alone:"
"""Of managers with another number of nodes than there are servers: those have been made fresh for all."""


@pytest.fixture
def url(nodes3):
    """Give a server."""
    return nodes3.urls[0]


@pytest.fixture
def secured(make_nodes):
    """Give the address of a server that wants a password."""
    return make_nodes(1, options={"requirepass": PASSWORD}).urls[0]


def with_password(address: str, password: str) -> str:
    """Return a URL with a password."""
    return address.replace("://", f"://:{password}@")


# -- clients of any make ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"protocol": 2},
        {"decode_responses": True, "encoding": "latin-1"},
        {"encoding": "utf-16"},
        pytest.param({"protocol": 3, "decode_responses": True}, marks=pytest.mark.heavy),
        pytest.param({"single_connection_client": True, "client_name": "app"}, marks=pytest.mark.heavy),
        pytest.param({"health_check_interval": 1, "retry_on_timeout": True}, marks=pytest.mark.heavy),
    ],
    ids=str,
)
async def test_clients_of_any_make(shared_nodes, client, options):
    """However a client decodes, speaks or tries again, the lock over it is the same."""
    initialise(urls := shared_nodes.urls[:3])
    async with running([client(url, **options) for url in urls], node_timeout=1.0) as manager:
        await works(manager)


@pytest.mark.parametrize("protocol", [None, 2])
async def test_its_waiters_are_notified_unless_resp2_was_asked_for(url, client, protocol):
    """As by a URL: RESP3 is tried unless RESP2 was asked for."""
    if protocol is not None and redis.__version__ < "8":
        pytest.skip("clients have this protocol without an option")
    options = {} if protocol is None else {"protocol": protocol}
    async with running([client(url, **options)], prefix=PREFIX) as manager:
        (notices,) = [one for one in await manager.diagnose() if one.check == "notices"]
        assert notices.level == ("ok" if protocol is None else "warning")


async def test_a_mixed_list(shared_nodes, client):
    """URLs, clients and masters in memory are one quorum, and a second manager sees the same locks."""
    urls = shared_nodes.urls
    memory = MemoryNode()

    nodes = [urls[0], client(urls[1]), memory, client(urls[2], decode_responses=True), urls[3]]
    others = [client(urls[0]), urls[1], memory, urls[2], client(urls[3])]
    async with (
        running(nodes, node_timeout=1.0, holder="first") as first,
        running(others, node_timeout=1.0, holder="second") as second,
    ):
        await works(first)
        await works(second)
        async with first.lock("res", ttl=30):
            with pytest.raises(LockTakenError) as caught:
                await second.lock("res", blocking=False).acquire()
            assert 20 < caught.value.retry_after <= 30
            await eventually(lambda: memory.get(b"redlock:res"))
            assert [entry.holder for entry in await second.inspect("res")] == ["first"] * 5
        await eventually(lambda: not any(map(lock_keys, urls)) and not memory.get(b"redlock:res"))


# -- whose client it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [ConnectionPool, BlockingConnectionPool])
async def test_a_client_is_neither_used_nor_closed(url, pool):
    """Its only connection is its owner's all the time; its owner may close it, and the node goes on."""
    async with Redis.from_pool(pool.from_url(url, max_connections=1)) as client:
        connection = await client.client_id()
        async with running([client], prefix=PREFIX) as manager:
            popping = asyncio.create_task(client.blpop(["queue"], timeout=0))
            await works(manager)
            ask(url, "RPUSH", "queue", "work")
            assert await popping
            assert await client.client_id() == connection
            await client.aclose()
            ask(url, "CLIENT KILL", "TYPE", "normal")
            await eventually(lambda: state(manager) is not NodeState.UP)
            await up(manager)
            await works(manager)


@pytest.fixture
async def own_class(client):
    """Give a function that makes a client with a connection class of its user's, by what that overrides."""

    def make(url, **methods):
        made = client(url)
        made.connection_pool.connection_class = type("Own", (Connection,), methods)
        return made

    return make


@pytest.mark.parametrize("what", ["_connect", "on_connect", "redis_connect_func"])
async def test_a_users_own_way_to_connect_is_gone(url, client, own_class, what):
    """Such as a tunnel, or commands behind the login; it is done as redis-py does it."""

    async def through_tunnel(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def with_name(self):
        await Connection.on_connect(self)
        await self.send_command("CLIENT SETNAME", "by-hand")
        await self.read_response()

    if what == "_connect":
        made = own_class(url, _connect=through_tunnel)
        made.connection_pool.connection_kwargs["host"] = "no.such.host.invalid"
    elif what == "on_connect":
        made = own_class(url, on_connect=with_name)
    else:
        made = client(url, redis_connect_func=with_name)
    async with running([made], prefix=PREFIX) as manager:
        await works(manager)
        if what != "_connect":
            assert "by-hand" in [entry["name"] for entry in ask(url, "CLIENT LIST")]


# -- logins ----------------------------------------------------------------------------------------


class Vault(CredentialProvider):
    """A user's own credential provider: it gives the credentials that the test sets."""

    def __init__(self) -> None:
        self.asked = 0
        self.given: Any = PASSWORD

    def get_credentials(self) -> Any:
        """Give the password, or fail."""
        self.asked += 1
        if isinstance(self.given, BaseException):
            raise self.given
        return (self.given,)

    async def get_credentials_async(self) -> Any:
        """Give it, fail, or never come back."""
        while self.given in ("hangs", "is deaf"):
            self.asked += not self.asked
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if self.given == "hangs":
                    raise
        return self.get_credentials()


async def heals(manager: LockManager, vault: Vault, reason: str) -> None:
    """Check that the first node is down for that reason, that locks go on, and that it is tried again."""
    await eventually(lambda: state(manager) is NodeState.DOWN)
    await eventually(lambda: reason in manager.statistics().nodes[0].reason)
    assert "its credential provider" in manager.statistics().nodes[0].reason
    async with manager.lock("res", blocking_timeout=10) as lease:
        await lease.extend()
    asked, vault.given = vault.asked, PASSWORD
    await up(manager)
    assert vault.asked > asked


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (KeyError("no such vault"), "KeyError: 'no such vault'"),
        (asyncio.CancelledError(), "other code cancelled"),
        ("hangs", "no answer"),
    ],
    ids=["raises", "is cancelled", "hangs"],
)
async def test_a_provider_that_fails_costs_its_node_alone(secured, client, given, reason):
    """It is a user's code, whatever it does: that node is down, says why, and is tried again."""
    if given == "hangs" and not hasattr(CredentialProvider, "get_credentials_async"):
        pytest.skip("there it would block the loop")
    vault = Vault()
    vault.given = given
    node = client(secured, credential_provider=vault)
    nodes = [node, MemoryNode(), MemoryNode()]
    async with LockManager(nodes, prefix=PREFIX, node_timeout=1.0, connect_timeout=0.3) as manager:
        await manager.start()
        await heals(manager, vault, reason)


@pytest.fixture
def deaf():
    """Give a vault that swallows cancellations until the test is over."""
    if not hasattr(CredentialProvider, "get_credentials_async"):
        pytest.skip("there it would block the loop")
    vault = Vault()
    vault.given = "is deaf"
    yield vault
    vault.given = PASSWORD


async def test_a_provider_that_swallows_its_cancellation_is_not_asked_beside_that(secured, client, deaf):
    """When it comes back, the node does."""
    node = client(secured, credential_provider=deaf)
    async with LockManager([node], prefix=PREFIX, connect_timeout=0.05) as manager:
        starting = asyncio.create_task(manager.start())
        await eventually(lambda: "has not ended since" in manager.statistics().nodes[0].reason)
        asked, deaf.given = deaf.asked, PASSWORD
        await up(manager)
        with contextlib.suppress(Exception):
            await starting
        assert asked == 1


async def test_a_provider_that_swallows_its_cancellation_keeps_no_manager_from_closing(client, secured, deaf):
    """It is left alone."""
    manager = LockManager([client(secured, credential_provider=deaf)], prefix=PREFIX, connect_timeout=0.05)
    async with asyncio.timeout(60):
        with contextlib.suppress(Exception):
            await manager.start()
        await manager.aclose()
    deaf.given = PASSWORD
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("by", ["provider", "argument"])
async def test_a_rotated_password_holds(secured, client, by):
    """It is read at each login: what the client was made with has ended long ago."""
    vault = Vault()
    login: dict[str, Any] = {"credential_provider": vault} if by == "provider" else {"password": PASSWORD}
    made = client(secured, **login)
    async with running([made], prefix=PREFIX) as manager:
        ask(with_password(secured, PASSWORD), "CONFIG SET", "requirepass", OTHER_PASSWORD)
        ask(with_password(secured, OTHER_PASSWORD), "CLIENT KILL", "TYPE", "normal")
        await eventually(lambda: state(manager) is NodeState.DOWN)
        await eventually(lambda: "username-password" in manager.statistics().nodes[0].reason)
        vault.given = OTHER_PASSWORD
        if by == "argument":
            made.connection_pool.connection_kwargs["password"] = OTHER_PASSWORD
        await up(manager)
        await works(manager)


@pytest.mark.parametrize("by", ["provider", "argument"])
@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_password_that_a_server_repeats_is_not_shown(client, by, hangs_up):
    """Neither an argument's nor one that a provider gave, also as the last words of a peer."""
    login: dict[str, Any] = {"credential_provider": Vault()} if by == "provider" else {"password": PASSWORD}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            writer.write(f"-ERR what is {PASSWORD}?\r\n".encode())
            if hangs_up:
                writer.close()

    async with listening(serve) as url, LockManager([client(url, **login)]) as manager:
        with contextlib.suppress(Exception):
            await manager.start()
        await eventually(lambda: state(manager) is NodeState.DOWN)
        assert PASSWORD not in repr(manager.statistics())


# -- what cannot be taken --------------------------------------------------------------------------


class Recording(Redis):
    """A client whose commands go another way than redis-py's."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it."""
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Sharded(RedisCluster):
    """The same for a Cluster."""

    execute_command = Recording.execute_command


class Picking(ConnectionPool):
    """A pool that makes connections in a way of its own."""

    def make_connection(self) -> Any:
        """Make one."""
        return super().make_connection()  # type: ignore[no-untyped-call]


def with_stub() -> Redis:
    """Return a client on which a test has put a stub."""
    client = Redis()
    client.execute_command = lambda *_args: None  # type: ignore[method-assign]
    return client


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (fakeredis.FakeAsyncRedis, "FakeAsyncRedisConnection.read_response is not redis-py's own"),
        (Recording, "Recording.execute_command is not redis-py's own"),
        (lambda: Sharded(host="127.0.0.1", port=1), "Sharded.execute_command is not redis-py's own"),
        (with_stub, "Redis.execute_command is not redis-py's own"),
        (lambda: Redis(connection_pool=Picking()), "Picking.make_connection is not redis-py's own"),
        (lambda: Redis(connection_pool=ConnectionPool(hots="a")), "its connection cannot be made"),
        (lambda: Sentinel([("a", 1)]).slave_for("main"), "client leads to replicas; use master_for()"),
        (lambda: redis.Redis(port=1), r"redis\.asyncio\.Redis"),
    ],
)
def test_what_cannot_be_taken_is_refused_at_once(make, what):
    """Its commands would go by; the error says what to give instead."""
    with pytest.raises(ConfigurationError, match=what) as caught:
        LockManager([make()], prefix="{a}:")
    if "redis-py's own" in what:
        assert "MemoryNode" in str(caught.value)
        assert "TcpFakeServer" in str(caught.value)


async def test_the_tcp_server_of_fakeredis_is_a_node():
    """As the error advises."""
    with fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis") as server:
        serving = asyncio.create_task(asyncio.to_thread(server.serve_forever))
        async with running([f"redis://127.0.0.1:{server.server_address[1]}"], node_timeout=5.0) as manager:
            await works(manager)
        server.shutdown()
        await serving


def test_a_traced_client_is_taken():
    """Tracers put their own function in place of redis-py's, on a client or on its class."""
    traced = Redis()
    traced.execute_command = functools.wraps(traced.execute_command)(lambda *_args: None)  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Redis, "execute_command", Recording.execute_command)
        assert "client:localhost:6379" in repr(LockManager([traced, Redis(host="b")]))


def test_a_service_given_twice_is_refused():
    """By any of its Sentinels, they lead to one master; those of another service need not (A4)."""
    one, other = (Sentinel([("127.0.0.1", port)]) for port in (7000, 7001))
    again = Sentinel([("127.0.0.1", 7000)]).master_for("main")
    for node in (one.master_for("main"), again, "redis+sentinel://127.0.0.1:7000/main"):
        with pytest.raises(ConfigurationError, match="client:sentinel:main"):
            LockManager([one.master_for("main"), node])
    LockManager([one.master_for("main"), one.master_for("spare"), other.master_for("main")])
