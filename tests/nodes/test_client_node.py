"""Nodes that are the user's own clients (rule R17), on real servers and on fakeredis."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import time
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
    Leader,
    Lease,
    LockManager,
    LockTakenError,
    QuorumUnavailableError,
)
from aioredlock_ng._core.command import Reply, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._locks import election
from aioredlock_ng._locks.lease import ReleaseOutcome
from aioredlock_ng._node import NodeState, calls, fork
from aioredlock_ng._node.client_node import LOOK_AFTER, ClientNode
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng.events import Hooks
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.local_nodes import initialise
from tests.behaviour.tools import all_up
from tests.nodes.tools import each_kind, node_of, running, state, up, works
from tests.redis_sentinels import running_sentinel, watching
from tests.servers import ask, eventually, lock_keys

PLAIN = ExtensionPolicy.off()
PASSWORD = "s3cret-pass"


class Replies:
    """Keeps what a node answers."""

    awaited = True

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def on_reply(self, _node: int, reply: Reply) -> None:
        """Write it down."""
        self.replies.append(reply)


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


def test_a_service_given_twice_is_refused():
    """Two clients of one Sentinel lead to one master; of another Sentinel they may not (A4)."""
    one, other = (Sentinel([("127.0.0.1", port)]) for port in (7000, 7001))
    with pytest.raises(ConfigurationError, match="client:sentinel:main"):
        LockManager([one.master_for("main"), one.master_for("main")])
    LockManager([one.master_for("main"), one.master_for("spare"), other.master_for("main")])


def test_a_client_is_looked_at_before_it_is_used():
    """One that blocks is refused; one whose pool leaves the address to redis-py has the usual one."""
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        LockManager([redis.Redis(port=1)])
    node = ClientNode(Redis(connection_pool=ConnectionPool()))
    assert node.name == "client:localhost:6379"
    assert node.address == ClientNode(Redis()).address
    node = ClientNode(Redis(host="example", port=6380, password=PASSWORD))
    assert repr(node) == "<ClientNode client:example:6380 connecting>"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "none such"])
def test_a_client_that_decodes_in_another_way_is_refused(encoding):
    """A label such as "büro" would not come back as it was, and no lock could be acquired."""
    with pytest.raises(ConfigurationError, match=f"client:example:6379.* as {encoding}.*encoding='utf-8'"):
        LockManager([Redis(host="example", decode_responses=True, encoding=encoding)])
    LockManager([Redis(encoding=encoding), Redis(port=1, decode_responses=True, encoding="UTF8")])


def test_a_client_with_one_connection_is_refused():
    """Its server could not be checked beside a call: redis-py says "Too many connections" (R17)."""
    with pytest.raises(
        ConfigurationError, match=r"client:example:6379.*max_connections=1: give it 2 or more"
    ):
        LockManager([Redis(host="example", max_connections=1)])


class Crowded(Redis):
    """A client that knows how many calls were under way at most."""

    under_way = most = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        finally:
            self.under_way -= 1


async def test_two_connections_are_enough(nodes3):
    """One for calls, and one for checks of the server, however many wait for one (R17)."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(Crowded(port=nodes3.ports[0], max_connections=2))
        manager = await stack.enter_async_context(
            running([client], prefix="alone:", node_timeout=5.0, connect_timeout=5.0)
        )
        greets = [manager._life.session.greet() for _ in range(3)]
        leases = await asyncio.gather(*(manager.lock(f"n{i}").acquire() for i in range(20)), *greets)
        await asyncio.gather(*(lease.release() for lease in leases if lease))
        assert client.most == 2
        assert state(manager) is NodeState.UP


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
        assert [node.pending_releases for node in manager.statistics().nodes] == [1] * 3
        await eventually(lambda: not any(node.pending_releases for node in manager.statistics().nodes))
        assert {one.outcome for one in (await lease.release()).nodes} == {ReleaseOutcome.RELEASED}
    assert empty(*nodes3.urls)()


# -- slow and broken servers ---------------------------------------------------------------------


async def _undone(urls: list[str]) -> None:
    await asyncio.gather(*(asyncio.to_thread(ask, url, "PING") for url in urls))  # when the pause is over
    await eventually(lambda: all("cmdstat_set" in ask(url, "INFO", "commandstats") for url in urls))
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
            assert all(vote.reason for vote in caught.value.votes)
        else:
            await eventually(lambda: in_flight(manager) >= 3)
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring
        await _undone(nodes3.urls)


async def test_a_release_called_again_knows_a_late_answer(nodes3, client):
    """The call goes on when its time is up; what it has said in the end is in the next report (R6)."""
    async with running([client(url) for url in nodes3.urls]) as manager:
        lease = await manager.lock("res", ttl=60).acquire()
        await eventually(lambda: not in_flight(manager))
        nodes3.pause(0)
        assert (await lease.release()).nodes[0].outcome is ReleaseOutcome.UNKNOWN
        assert 1 <= manager.statistics().nodes[0].in_flight <= 2, "the release, and perhaps a heartbeat"
        nodes3.resume(0)
        async with asyncio.timeout(10):
            while (await lease.release()).nodes[0].outcome is not ReleaseOutcome.RELEASED:
                await asyncio.sleep(0.01)


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
            await eventually(lambda: all(node.pending_releases for node in manager.statistics().nodes))
        for i in range(3):
            nodes3.resume(i)
        await up(manager)
        await eventually(lambda: not in_flight(manager))
        await asyncio.sleep(0)
        await eventually(empty(*nodes3.urls), within=2 * LOOK_AFTER + 20)
        executed = [ask(url, "INFO", "commandstats").get("cmdstat_set") for url in nodes3.urls]
        assert any(executed), "at least one server did execute the acquire late"
        await works(manager)


# -- what clients say instead of an answer -------------------------------------------------------


class Faulty(CredentialProvider):
    """A user's own code that fails with an error of its own."""

    def get_credentials(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")

    async def get_credentials_async(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")


async def test_connections_that_the_server_closed_cost_no_vote(nodes3, client):
    """A pool may hold many of them while the server is well: the next look takes a new one."""
    went: list[NodeState] = []

    class Watching(Hooks):
        def on_node_changed(self, event):
            went.append(event.state)

    pooled = client(nodes3.urls[0], retry=Retry(NoBackoff(), 0))
    async with running([pooled], prefix="alone:", hooks=[Watching()]) as manager:
        await asyncio.gather(*(pooled.ping() for _ in range(10)))
        looked = manager.statistics().nodes[0].round_trip
        ask(nodes3.urls[0], "CLIENT KILL", "TYPE", "normal")
        await eventually(lambda: manager.statistics().nodes[0].round_trip != looked)
        assert set(went) == {NodeState.UP}


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


class GivenUp(Redis):
    """A client that waits, before some commands, for a task of its user's, which somebody cancels."""

    verbs: tuple[Any, ...] = ()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it."""
        if args[0] in self.verbs:
            shared = asyncio.ensure_future(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(shared.cancel)
            await shared
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


@contextlib.asynccontextmanager
async def one_given_up(ports: list[int], caplog: pytest.LogCaptureFixture) -> Any:
    """Run a manager over such clients, and give both; it must not end by itself."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(GivenUp(port=port)) for port in ports]
        manager = await stack.enter_async_context(running(clients, ttl=60, node_timeout=5.0))
        await works(manager)
        await eventually(lambda: not in_flight(manager))
        yield clients[0], manager
        assert "failed" not in caplog.text


async def test_a_call_that_others_cancel_is_silence(nodes3, caplog):
    """Whatever the client waited for was cancelled, not the manager: its node is down until it is well."""
    async with one_given_up(nodes3.ports, caplog) as (given_up, manager):
        async with manager.lock("res") as lease:
            given_up.verbs = (b"EVALSHA", "EVALSHA", "SET")  # the first is the greeting's
            await eventually(lambda: state(manager, 0) is NodeState.DOWN)
            assert "other code cancelled" in manager.statistics().nodes[0].reason
            await lease.extend()
            async with manager.lock("other"):
                pass
            given_up.verbs = ()
            await up(manager)
        assert asyncio.current_task().cancelling() == 0


async def test_a_release_that_others_cancel_is_repeated(nodes3, caplog):
    """It is a release like any that failed: it goes to the ledger, and its key does not stay (R5)."""
    async with one_given_up(nodes3.ports, caplog) as (given_up, manager):
        lease = await manager.lock("res").acquire()
        await eventually(lambda: not in_flight(manager))
        given_up.verbs = ("EVALSHA",)
        report = await lease.release()
        assert report.nodes[0].outcome is ReleaseOutcome.UNKNOWN
        assert "other code cancelled" in report.nodes[0].reason
        given_up.verbs = ()
        await eventually(lambda: not lock_keys(nodes3.urls[0]))


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
        await eventually(lambda: not any(node.pending_releases for node in manager.statistics().nodes))
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


async def test_a_release_is_repeated_while_its_acquire_may_still_come(nodes3, client):
    """A call that failed may arrive behind its release: "was not held" proves nothing (R5)."""
    url = nodes3.urls[0]
    async with running([client(url)], prefix="alone:") as manager:
        node, heard, owner = manager._life.nodes[0], Replies(), b"%040x:host" % 1
        mutex = Primitive(MUTEX, ("res",), (b"alone:res",))
        node._ledger.record_unresolved(mutex.acquire(owner, 60.0), node.env.clock.now())
        node.submit(mutex.release(owner, 60.0), heard, 0)
        await eventually(lambda: heard.replies)
        ask(url, "SET", "alone:res", owner)
        await eventually(lambda: not lock_keys(url, "alone:"))


@pytest.mark.heavy
async def test_what_is_owed_is_repeated_as_far_as_there_is_room(nodes3, client, monkeypatch):
    """A long ledger does not fill the loop with calls: those beyond the limit are made later (R5, R15)."""
    async with running([client(nodes3.urls[0])], prefix="alone:") as manager:
        await eventually(lambda: not in_flight(manager))
        node, mutex = manager._life.nodes[0], Primitive(MUTEX, ("res",), (b"alone:res",))
        monkeypatch.setattr(calls, "MAX_RELEASES", 3)
        for number in range(5):
            node._ledger.record(mutex.release(b"%d" % number, 600.0), node.env.clock.now())
        node._repeat_releases()
        assert in_flight(manager) == 3
        await eventually(lambda: not node.status.pending_releases)


async def test_what_comes_after_the_end_or_a_fork_is_told_so(nodes3, client, monkeypatch):
    """At once, with the reason, and that nothing was sent: no call is begun (R15)."""
    ping, forked, closed = heartbeat(b"x"), Replies(), Replies()
    async with running([client(url) for url in nodes3.urls]) as manager:
        assert manager._life.session is not None
        node = manager._life.session.nodes[0]
        with monkeypatch.context() as patch:
            patch.setattr(fork, "generation", -2)
            node.submit(ping, forked, 0)
    node.submit(ping, closed, 0)
    assert forked.replies == [Silence("the connection belongs to another process", sent=False)]
    assert closed.replies == [Silence("closed", sent=False)]


TTL = 2.0
FROZEN = 3.3
"""Seconds: longer than the ttl, counted from the failure of the release behind the failed acquire."""

SOON = 0.65 * TTL
"""Seconds after which the key is gone: a look comes every 0.5 s, and without a release it stays for a ttl."""


def sets(url: str) -> int:
    """Return how many SETs a server has executed."""
    return int(ask(url, "INFO", "commandstats").get("cmdstat_set", {}).get("calls", 0))


@pytest.mark.heavy
async def test_a_freeze_longer_than_the_ttl_leaves_no_key(nodes3):
    """A SET that a frozen server executes when it goes on is undone soon, even when its ttl has passed."""
    url = nodes3.urls[0]
    async with contextlib.AsyncExitStack() as stack:
        clients: list[Redis] = []
        for port in nodes3.ports:
            clients.append(Redis(port=port, socket_timeout=0.3, retry=Retry(NoBackoff(), 0)))
            stack.push_async_callback(clients[-1].aclose)
        manager = await stack.enter_async_context(LockManager(clients, ttl=TTL))
        await all_up(manager)
        async with manager.lock("warm"):
            pass
        # Connections enough: one that has to be made to a frozen server carries no SET.
        await asyncio.gather(*(clients[0].ping() for _ in range(8)))
        before = sets(url)
        nodes3.pause(0)
        stack.callback(nodes3.resume, 0)
        lease = await manager.lock("a").acquire()
        await lease.release()
        await asyncio.sleep(FROZEN)
        nodes3.resume(0)
        thawed = time.monotonic()
        await eventually(lambda: sets(url) > before, within=SOON, what="the SET is executed after all")
        left = thawed + SOON - time.monotonic()
        await eventually(lambda: not ask(url, "EXISTS", "redlock:a"), within=left, what="the key is gone")
        await eventually(lambda: not manager.statistics().nodes[0].pending_releases, what="nothing is owed")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the clients are not closed, which is the point
@pytest.mark.parametrize("frozen", [(), (0,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("waiting", [False, True], ids=["a lease", "a lease and an acquire under way"])
def test_a_loop_that_is_torn_down_over_clients(nodes3, frozen, waiting):
    """asyncio.run leaves no pending task and no unheard error behind, and what can be released is."""
    complaints: list[dict[str, Any]] = []
    kept: list[Lease] = []
    tasks: list[asyncio.Task[Lease]] = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        manager = LockManager([Redis(port=port) for port in nodes3.ports], ttl=20.0)
        await manager.start()
        kept.append(await manager.lock("held").acquire())
        for i in frozen:
            nodes3.pause(i)
        if waiting:
            tasks.append(asyncio.create_task(manager.lock("wanted").acquire()))
            await asyncio.sleep(0)
        return loop

    loop = asyncio.run(main())
    assert asyncio.all_tasks(loop) == set()
    assert not kept[0].held
    assert all(task.done() for task in tasks)
    kept.clear()
    tasks.clear()  # their tracebacks keep clients
    gc.collect()  # here, where no other test uses the clients
    assert complaints == []
    for i, url in enumerate(nodes3.urls):
        if i not in frozen:
            assert lock_keys(url) == []


@pytest.fixture
def impatient(monkeypatch):
    """Have observers look as often as they can."""
    monkeypatch.setattr(election, "LOOK_SELDOM", 0.01)
    monkeypatch.setattr(election, "LOOK_EVERY", 0.02)


@pytest.mark.parametrize("options", [{}, {"protocol": 3}, {"decode_responses": True}], ids=str)
async def test_candidates_and_observers(impatient, shared_nodes, client, options):
    """A leader is announced, heard of by another process, and gone when it has resigned."""
    urls = shared_nodes.urls
    made = [[client(url, **options) for url in urls] for _ in range(2)]
    async with (
        LockManager(made[0], node_timeout=5) as first,
        LockManager(made[1], node_timeout=5) as second,
        contextlib.aclosing(second.election("scheduler").observe()) as news,
    ):
        assert await anext(news) is None
        for label in ("zoë", "b"):
            async with first.election("scheduler", holder=label).campaign() as leadership:
                assert await anext(news) == Leader(leadership.term, label)
                assert await second.election("scheduler").leader() == Leader(leadership.term, label)
            assert await anext(news) is None
