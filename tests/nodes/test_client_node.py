"""Nodes that are the user's own clients (rule R17), on real servers and on fakeredis."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    LockManager,
    LockTakenError,
    QuorumUnavailableError,
)
from aioredlock_ng._core.command import Reply, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._local.admission import MAX_TRIES_BY_CLIENTS
from aioredlock_ng._locks.lease import ReleaseOutcome
from aioredlock_ng._node import NodeState, calls, client_node
from aioredlock_ng._node.client_node import LOOK_AFTER, ClientNode
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._fresh import initialise
from tests.nodes.clients import each_kind, node_of
from tests.nodes.standing import running, state, up
from tests.redis_sentinels import running_sentinel, watching
from tests.servers import ask, eventually, kill_connections, lock_keys

PLAIN = ExtensionPolicy.off()
PASSWORD = "s3cret-pass"
POOLED = 6
"""Connections that lie idle in a pool, at least."""


class Replies:
    """Keeps what a node answers."""

    awaited = True

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def on_reply(self, _node: int, reply: Reply) -> None:
        """Write it down."""
        self.replies.append(reply)


async def extended(lease: Lease, ttl: float) -> None:
    """Extend a lease; in the time that a test leaves its nodes, a slow machine may need several rounds."""
    for _ in range(100):
        with contextlib.suppress(QuorumUnavailableError):
            await lease.extend(ttl)
            return
    raise AssertionError("no majority answered in a hundred rounds")


async def works(manager: LockManager) -> None:
    """Go through the life of a lock: take it, extend it, look at it, release it; one name and two."""
    for names in (("works",), ("works", "works too")):
        async with manager.lock(*names, ttl=30) as lease:
            await extended(lease, 60)
            assert lease.remaining > 50
            seen = await manager.inspect("works")
            assert sum(entry.ours for entry in seen) > len(seen) / 2
            assert await manager.lock("works").try_acquire() is None
        assert len(await manager.force_release("works")) == len(seen)


def empty(*urls: str) -> Callable[[], bool]:
    """Return a condition: these servers hold no lock."""
    return lambda: not any(map(lock_keys, urls))


# -- kinds of clients ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decode_responses": True},
        {"protocol": 3},
        pytest.param({"protocol": 3, "decode_responses": True}, marks=pytest.mark.heavy),
        {"single_connection_client": True},
        pytest.param({"max_connections": 1000, "health_check_interval": 1}, marks=pytest.mark.heavy),
    ],
    ids=str,
)
async def test_clients_of_any_make(shared_nodes, client, options):
    """However a client decodes, pools or speaks, the lock over it is the same."""
    initialise(urls := shared_nodes.urls[:3])
    async with running([client(url, **options) for url in urls], node_timeout=1.0) as manager:
        await works(manager)
        leases = await asyncio.gather(*(manager.lock(f"n{i}").acquire() for i in range(50)))
        await asyncio.gather(*(lease.release() for lease in leases))
        await eventually(empty(*urls))


async def test_a_client_made_by_sentinel(nodes3, tmp_path, client):
    """It resolves the address at each connect; the node is named after the service."""
    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(
            running_sentinel(tmp_path / "sentinel", *watching("main", nodes3.ports[0]))
        )
        watch = Sentinel([("127.0.0.1", port)])
        main = watch.master_for("main")
        for made in (main, *watch.sentinels):
            stack.push_async_callback(made.aclose)
        async with LockManager([main, client(nodes3.urls[1]), nodes3.urls[2]], node_timeout=1.0) as manager:
            assert "client:sentinel:main" in repr(manager)
            await up(manager)
            await works(manager)
            async with manager.lock("res"):
                await eventually(lambda: ask(nodes3.urls[0], "EXISTS", "redlock:res"))
            await eventually(empty(*nodes3.urls))
        assert await main.ping()


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("servers", ["given", "implied"])
async def test_fakeredis(decode, servers):
    """With its Lua extra it is a node like any, so that users can test without a server."""
    fakeredis = pytest.importorskip("fakeredis", reason="fakeredis is not installed")
    pytest.importorskip("lupa", reason="fakeredis[lua] is not installed")
    options = [{"server": fakeredis.FakeServer()} if servers == "given" else {} for _ in range(3)]
    clients = [fakeredis.FakeAsyncRedis(decode_responses=decode, **given) for given in options]
    try:
        async with running(clients, node_timeout=2.0) as manager:
            await works(manager)
    finally:
        for one in clients:
            await one.aclose()


async def test_a_mixed_list(shared_nodes, client):
    """URLs, clients and masters in memory are one quorum, and a second manager sees the same locks."""
    urls = shared_nodes.urls
    memory = MemoryNode()

    def nodes(other_way_round):
        kinds = [urls[0], client(urls[1]), memory, client(urls[2], decode_responses=True), urls[3]]
        if other_way_round:
            kinds = [client(urls[0]), urls[1], memory, urls[2], client(urls[3])]
        return kinds

    async with (
        LockManager(nodes(False), node_timeout=1.0, holder="first") as first,
        LockManager(nodes(True), node_timeout=1.0, holder="second") as second,
    ):
        await up(first)
        await up(second)
        await works(first)
        await works(second)
        async with first.lock("res", ttl=30):
            with pytest.raises(LockTakenError) as caught:
                await second.lock("res", blocking=False).acquire()
            assert 20 < caught.value.retry_after <= 30
            await eventually(lambda: memory.get(b"redlock:res"))
            assert [entry.holder for entry in await second.inspect("res")] == ["first"] * 5
        async with second.lock("res", blocking_timeout=5) as lease:
            assert lease.held
        await eventually(empty(*urls))
        await eventually(lambda: not memory.get(b"redlock:res"))


# -- what cannot be a node -----------------------------------------------------------------------


@pytest.mark.parametrize("other", ["same object", "same address", "url", "other database"])
async def test_a_server_given_twice_is_refused(client, other):
    """A client and a URL of one address are one server, whatever their database (A4)."""
    url = "redis://127.0.0.1:7000"
    first = client(url)
    nodes = {"same object": first, "same address": client(url), "url": url, "other database": f"{url}/5"}
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:7000"):
        LockManager([first, nodes[other]])


def test_a_client_is_looked_at_before_it_is_used():
    """One that blocks would block the loop; one whose pool leaves the address to redis-py has the usual one."""
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        LockManager([redis.Redis(port=1)])
    node = ClientNode(Redis(connection_pool=ConnectionPool()))
    assert node.name == "client:localhost:6379"
    assert node.address == ClientNode(Redis()).address
    node = ClientNode(Redis(host="example", port=6380, password=PASSWORD))
    assert repr(node) == "<ClientNode client:example:6380 connecting>"


# -- whose client it is --------------------------------------------------------------------------


async def test_a_client_is_never_closed(nodes3, client):
    """It belongs to its owner: it works on, over the same connections, after the manager has closed."""
    clients = [client(url) for url in nodes3.urls]
    ids = [await one.client_id() for one in clients]
    async with LockManager(clients) as manager:
        await works(manager)
        await eventually(lambda: not in_flight(manager))
    for url, number in zip(nodes3.urls, ids, strict=True):
        assert number in [int(entry["id"]) for entry in ask(url, "CLIENT LIST")]
    assert all([await one.ping() for one in clients])
    assert not any(map(lock_keys, nodes3.urls))
    async with LockManager(clients) as again:
        await works(again)


async def test_a_release_without_room_is_written_down(nodes3, client):
    """So many releases wait for their acquires that one more cannot: the ledger has it (R5, R15)."""
    manager = LockManager([client(url, max_connections=100) for url in nodes3.urls], node_timeout=3.0)
    async with manager:
        await up(manager)
        lease = await manager.lock("res", ttl=60).acquire()
        await eventually(lambda: not in_flight(manager))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls, "MAX_RELEASES", 0)
            report = await lease.release()
        assert {one.outcome for one in report.nodes} == {ReleaseOutcome.UNKNOWN}
        assert [node.owed for node in manager.statistics().nodes] == [1] * 3
        await eventually(lambda: not any(node.owed for node in manager.statistics().nodes))
        assert {one.outcome for one in (await lease.release()).nodes} == {ReleaseOutcome.RELEASED}
    assert empty(*nodes3.urls)()


# -- slow and broken servers ---------------------------------------------------------------------


async def _undone(urls: list[str]) -> None:
    await asyncio.gather(*(asyncio.to_thread(ask, url, "PING") for url in urls))  # when the pause is over
    await eventually(
        lambda: all("cmdstat_set" in ask(url, "INFO", "commandstats") for url in urls),
        what="the acquire is executed",
    )
    await eventually(empty(*urls), what="and undone")


def in_flight(manager: LockManager) -> int:
    """Return how many calls are under way."""
    return sum(node.in_flight for node in manager.statistics().nodes)


@pytest.mark.heavy
@each_kind
@pytest.mark.parametrize("names", [("res",), ("res", "other")])
@pytest.mark.parametrize("ends", ["times out", "is cancelled"])
async def test_a_release_waits_for_the_end_of_a_slow_acquire(nodes3, client, kind, names, ends):
    """Calls of a pool overtake each other: the release is chained behind the acquire's call (R6)."""
    nodes = [node_of(kind, url, client) for url in nodes3.urls]
    async with running(nodes, node_timeout=0.2 if ends == "times out" else 5.0) as manager:
        await works(manager)  # every pool has its connections
        for url in nodes3.urls:
            ask(url, "CONFIG RESETSTAT")
            ask(url, "CLIENT PAUSE", 1500, "ALL")
        acquiring = asyncio.create_task(manager.lock(*names, ttl=60, blocking_timeout=0).acquire())
        if ends == "times out":
            with pytest.raises(QuorumUnavailableError) as caught:
                await acquiring
            assert all(vote.reason.startswith("no answer within") for vote in caught.value.votes)
        else:
            await eventually(lambda: in_flight(manager) >= 3)
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring
        await _undone(nodes3.urls)


@each_kind
async def test_a_manager_that_closes_behind_a_slow_acquire_undoes_it(nodes3, client, kind):
    """The acquire was cancelled and its nodes go on within the node_timeout: closing waits for that."""
    urls = nodes3.urls
    manager = LockManager([node_of(kind, url, client) for url in urls], node_timeout=5.0)
    async with manager:
        await up(manager)
        await works(manager)
        await eventually(lambda: not in_flight(manager))
        for i in range(3):
            ask(urls[i], "CONFIG RESETSTAT")
            nodes3.pause(i)
        acquiring = asyncio.create_task(manager.lock("res", ttl=60).acquire())
        await eventually(lambda: in_flight(manager) >= 3)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        closing = asyncio.create_task(manager.aclose())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        for i in range(3):
            nodes3.resume(i)
        await closing
    await _undone(urls)


@pytest.mark.parametrize("retry", ["default", "none"])
async def test_what_a_frozen_server_grants_late_is_undone(nodes3, client, retry):
    """The client gave up and closed its connection; the server still executes what has arrived."""
    options: dict[str, Any] = {"socket_timeout": 0.1, "socket_connect_timeout": 0.1}
    if retry == "none":
        options["retry"] = Retry(NoBackoff(), 0)
    clients = [client(url, **options) for url in nodes3.urls]
    async with running(clients, node_timeout=0.05) as manager:
        await works(manager)
        for i in range(3):
            ask(nodes3.urls[i], "CONFIG RESETSTAT")
            nodes3.pause(i)
        with pytest.raises(QuorumUnavailableError):
            await manager.lock("res", ttl=60, blocking=False).acquire()
        if retry == "none":
            await eventually(lambda: all(node.owed for node in manager.statistics().nodes))
        for i in range(3):
            nodes3.resume(i)
        await up(manager)
        await eventually(lambda: not in_flight(manager))
        await asyncio.sleep(0)
        await eventually(empty(*nodes3.urls), within=2 * LOOK_AFTER + 20)
        executed = [ask(url, "INFO", "commandstats").get("cmdstat_set") for url in nodes3.urls]
        assert any(executed), "at least one server did execute the acquire late"
        await works(manager)


@pytest.mark.heavy
async def test_a_pooled_connection_that_the_server_closed_costs_no_vote(nodes3, client):
    """A pool may hold many dead connections while the server is well: the look at it takes a new one."""
    went: list[str] = []

    class Watching:
        """Hears of the nodes' states."""

        def on_node_changed(self, event):
            """Write it down."""
            went.append(event.state.value)

    clients = [client(url) for url in nodes3.urls]
    async with running(clients, connect_timeout=10.0, hooks=[Watching()]) as manager:

        def looks():
            return [node.round_trip for node in manager.statistics().nodes]

        for _ in range(2):
            for each in clients:
                await asyncio.gather(*(each.ping() for _ in range(POOLED)))
            before = looks()
            for url in nodes3.urls:
                kill_connections(url)
            await eventually(
                lambda before=before: not any(map(operator.eq, looks(), before)), within=2 * LOOK_AFTER + 60
            )
        assert went == ["up"] * 3


# -- what clients say instead of an answer -------------------------------------------------------


class Faulty(CredentialProvider):
    """A user's own code that fails with an error of its own."""

    def get_credentials(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")

    async def get_credentials_async(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")


@pytest.mark.heavy
async def test_a_client_that_fails_in_its_own_way_does_no_harm(make_nodes, client):
    """An error that is not redis-py's is a silent vote with a reason; the other nodes go on."""
    (secured,) = make_nodes(1, options={"requirepass": PASSWORD}).urls
    well = make_nodes(2).urls
    initialise([*well, secured])
    nodes = [*map(client, well), client(secured, credential_provider=Faulty())]
    async with LockManager(nodes, node_timeout=0.3) as manager:
        for _ in range(2):
            async with manager.lock("res", ttl=0.9) as lease:
                await eventually(lambda lease=lease: lease.extensions >= 2, what="the watchdog lives")
        await eventually(lambda: state(manager, 2) is NodeState.DOWN)
        # redis-py may use the connection again that its own login failed on.
        assert re.search("vault|authenticat", manager.statistics().nodes[2].reason, re.IGNORECASE)


class Behind(Redis):
    """A client that gives each script the answer to the one before it, once it is told to."""

    behind = False
    before: Any = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it."""
        answer = await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        if args[0] == "EVALSHA":  # no greeting, whose verb is bytes
            self.before, last = answer, self.before
            return last if self.behind else answer
        return answer


@pytest.mark.heavy
async def test_the_answer_to_another_call_counts_for_nothing(nodes3):
    """A client that confuses replies costs its votes: one of three costs no lock, three cost all (R15)."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Behind(port=port)) for port in nodes3.ports]
        manager = await stack.enter_async_context(LockManager(clients, node_timeout=5.0))
        await up(manager)
        await works(manager)
        clients[0].behind = True
        async with manager.lock("a", blocking=False) as lease:
            await lease.extend()
        for client in clients:
            client.behind = True
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("b", blocking=False).acquire()
        assert "the reply belongs to another call" in caught.value.votes[0].reason
        assert {vote.vote for vote in caught.value.votes} == {Vote.SILENT}
        for client in clients:
            client.behind = False
        await eventually(lambda: not any(node.owed for node in manager.statistics().nodes))
    await eventually(lambda: not lock_keys(nodes3.urls[0]))


class Noting(Redis):
    """A client that notes the tags of the scripts that it calls."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tags: list[bytes] = []

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it."""
        self.tags += args[-1:] if args[0] == "EVALSHA" else ()
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


@pytest.mark.heavy
async def test_managers_that_share_a_client_share_no_tag(nodes3):
    """An answer that the pool confuses may be another manager's, or that of one which was closed (R15)."""
    async with Noting(port=nodes3.ports[0]) as client:
        for _ in range(2):
            async with LockManager([client], prefix="a:") as one, LockManager([client], prefix="b:") as other:
                await up(one)
                await up(other)
                await works(one)
                await works(other)
        assert len(client.tags) > 10
        assert len(set(client.tags)) == len(client.tags)


@pytest.mark.heavy
async def test_calls_are_bounded(nodes3, client, monkeypatch):
    """A thousand acquires against servers that stand still: refused or timed out, and all undone."""
    clients = [client(url, max_connections=2000) for url in nodes3.urls]
    monkeypatch.setattr(
        calls, "MAX_CALLS", MAX_TRIES_BY_CLIENTS // 2
    )  # fewer than leave in one turn of the loop
    async with running(clients, node_timeout=0.3, connect_timeout=5.0) as manager:
        for i in range(3):
            nodes3.pause(i)
        outcomes = await asyncio.gather(
            *(manager.lock(f"n{i}", ttl=60, blocking=False).acquire() for i in range(1000)),
            return_exceptions=True,
        )
        reasons = [error.votes[0].reason for error in outcomes if isinstance(error, QuorumUnavailableError)]
        assert len(reasons) == 1000
        assert "too many calls under way" in reasons
        for i in range(3):
            nodes3.resume(i)
        await eventually(lambda: not any(node.in_flight + node.owed for node in manager.statistics().nodes))
        await eventually(empty(*nodes3.urls))
        await works(manager)


async def test_what_comes_after_the_end_or_a_fork_is_told_so(nodes3, client, monkeypatch):
    """At once, with the reason, and that nothing was sent: no call is begun (R15)."""
    ping, forked, closed = heartbeat(b"x"), Replies(), Replies()
    async with running([client(url) for url in nodes3.urls]) as manager:
        assert manager._life.session is not None
        node = manager._life.session.nodes[0]
        with monkeypatch.context() as patch:
            patch.setattr(client_node, "generation", lambda: -2)
            node.submit(ping, forked, 0)
    node.submit(ping, closed, 0)
    assert forked.replies == [Silence("the connection belongs to another process", sent=False)]
    assert closed.replies == [Silence("closed", sent=False)]
