"""Nodes that are the user's own clients (rule R17), on real servers and on fakeredis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import random
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    QuorumUnavailableError,
    _scripts,
)
from aioredlock_ng._core.command import Reply, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._local.admission import MAX_TRIES_BY_CLIENTS
from aioredlock_ng._locks.lease import ReleaseOutcome
from aioredlock_ng._node import NodeState, calls, client_node
from aioredlock_ng._node.client_node import LOOK_AFTER, ClientNode
from aioredlock_ng._node.link import heartbeat
from aioredlock_ng._node.turnstile import AT_ONCE
from aioredlock_ng.testing import LocalNodes, MemoryNode
from aioredlock_ng.testing._fresh import initialise
from tests.nodes.clients import MakeClient
from tests.nodes.standing import state, up
from tests.servers import answers, ask, eventually, fastest_arm, kill_connections, lock_keys

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
async def test_clients_of_any_make(shared_nodes: Any, client: MakeClient, options: dict[str, Any]) -> None:
    """However a client decodes, pools or speaks, the lock over it is the same."""
    initialise(urls := shared_nodes.urls[:3])
    async with LockManager([client(url, **options) for url in urls], node_timeout=1.0) as manager:
        await up(manager)
        await works(manager)
        leases = await asyncio.gather(*(manager.lock(f"n{i}").acquire() for i in range(50)))
        await asyncio.gather(*(lease.release() for lease in leases))
        await eventually(empty(*urls))


@pytest.mark.heavy
@pytest.mark.parametrize("connections", [AT_ONCE + 8, 6])
async def test_many_leases_over_a_pool(shared_nodes: Any, client: MakeClient, connections: int) -> None:
    """More leases than the pool has connections: none is refused one, neither by the pool nor by acquires."""
    initialise(urls := shared_nodes.urls[:3])
    clients = [client(url, max_connections=connections) for url in urls]
    async with LockManager(clients, node_timeout=15.0, ttl=60.0) as manager:
        await up(manager)
        assert manager._life.session is not None
        assert manager._life.session.admission.most == MAX_TRIES_BY_CLIENTS
        leases = await asyncio.gather(*(manager.lock(f"held {i}").acquire() for i in range(3 * AT_ONCE)))
        burst = [asyncio.create_task(manager.lock(f"n{i}").acquire()) for i in range(3 * AT_ONCE)]
        await asyncio.gather(*(lease.extend() for lease in leases))
        leases += await asyncio.gather(*burst)
        statistics = manager.statistics()
        assert (statistics.refused, statistics.lost, statistics.held) == (0, 0, 6 * AT_ONCE)
        others = [vote for lease in leases for vote in lease.votes if vote.vote is not Vote.GRANTED]
        assert {vote.reason for vote in others} <= {"no answer yet"}
        await asyncio.gather(*(lease.release() for lease in leases))
        await eventually(empty(*urls))


@pytest.mark.heavy
async def test_a_small_blocking_pool(shared_nodes: Any) -> None:
    """Two connections are enough for twenty tasks: calls queue in the pool, and releases are not lost."""
    initialise(urls := shared_nodes.urls[:3])
    pools = [BlockingConnectionPool.from_url(url, max_connections=2, timeout=60) for url in urls]
    clients = [Redis(connection_pool=pool) for pool in pools]
    try:
        async with LockManager(clients, node_timeout=30.0, ttl=120.0) as manager:
            await up(manager)

            async def use(number: int) -> None:
                for _ in range(5):
                    async with manager.lock(f"n{number % 4}", blocking_timeout=100):
                        pass

            await asyncio.gather(*(use(number) for number in range(20)))
            await eventually(empty(*urls))
    finally:
        for pool in pools:
            await pool.disconnect()


@pytest.fixture
def sentinel(nodes3: LocalNodes, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Run a sentinel that watches the first server; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if fastest_arm() != "path":
        pytest.skip("path: there is no redis-server on PATH to run as a sentinel")
    file = tmp_path / "sentinel.conf"
    file.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {nodes3.ports[0]} 1\n")
    process = subprocess.Popen(
        ["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()


async def test_a_client_made_by_sentinel(
    nodes3: LocalNodes, sentinel: tuple[str, int], client: MakeClient
) -> None:
    """It resolves the address at each connect; the node is named after the service."""
    await eventually(lambda: answers(sentinel[1]), what="the sentinel answers")
    watch = Sentinel([sentinel])
    main = watch.master_for("main")
    nodes = [main, client(nodes3.urls[1]), nodes3.urls[2]]
    try:
        async with LockManager(nodes, node_timeout=1.0) as manager:
            assert "client:sentinel:main" in repr(manager)
            await up(manager)
            await works(manager)
            async with manager.lock("res") as lease:
                await eventually(lambda: ask(nodes3.urls[0], "EXISTS", "redlock:res"))
                assert lease.held
            await eventually(empty(*nodes3.urls))
        assert await main.ping()
    finally:
        await main.aclose()
        for sentinel_client in watch.sentinels:
            await sentinel_client.aclose()


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("servers", ["given", "implied"])
async def test_fakeredis(decode: bool, servers: str) -> None:
    """With its Lua extra it is a node like any, so that users can test without a server."""
    fakeredis = pytest.importorskip("fakeredis", reason="fakeredis is not installed")
    pytest.importorskip("lupa", reason="fakeredis[lua] is not installed")
    options = [{"server": fakeredis.FakeServer()} if servers == "given" else {} for _ in range(3)]
    clients = [fakeredis.FakeAsyncRedis(decode_responses=decode, **given) for given in options]
    try:
        async with LockManager(clients, node_timeout=2.0) as manager:
            await up(manager)
            await works(manager)
            lease = await manager.lock("res").acquire()
            for one in clients[:2]:
                await one.delete("redlock:res")
            with pytest.raises(LockLostError) as caught:
                await lease.extend()
            assert caught.value.reason is LossReason.REFUSED
            await lease.release()
            assert not any([await one.exists("redlock:res") for one in clients])
    finally:
        for one in clients:
            await one.aclose()


async def test_a_mixed_list(shared_nodes: Any, client: MakeClient) -> None:
    """URLs, clients and masters in memory are one quorum, and a second manager sees the same locks."""
    urls = shared_nodes.urls
    memory = MemoryNode()

    def nodes(other_way_round: bool) -> list[Any]:
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


def test_a_blocking_client_is_refused() -> None:
    """It would block the loop: the error says what is wanted instead."""
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        LockManager([redis.Redis(port=1)])


@pytest.mark.parametrize("other", ["same object", "same address", "url", "other database"])
async def test_a_server_given_twice_is_refused(client: MakeClient, other: str) -> None:
    """A client and a URL of one address are one server, whatever their database."""
    url = "redis://127.0.0.1:7000"
    first = client(url)
    nodes = {"same object": first, "same address": client(url), "url": url, "other database": f"{url}/5"}
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:7000"):
        LockManager([first, nodes[other]])


# -- whose client it is --------------------------------------------------------------------------


async def test_a_client_is_never_closed(nodes3: LocalNodes, client: MakeClient) -> None:
    """It belongs to its owner: it works on, over the same connections, after the manager has closed."""
    clients = [client(url) for url in nodes3.urls]
    ids = [await one.client_id() for one in clients]
    async with LockManager(clients) as manager:
        await works(manager)
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
    for url, number in zip(nodes3.urls, ids, strict=True):
        assert number in [int(entry["id"]) for entry in ask(url, "CLIENT LIST")]
    assert all([await one.ping() for one in clients])
    assert not any(map(lock_keys, nodes3.urls))
    async with LockManager(clients) as again:
        await works(again)


async def test_closing_ends_what_is_under_way(nodes3: LocalNodes, client: MakeClient) -> None:
    """No task of a node outlives its manager, not even one whose server stands still."""
    before = asyncio.all_tasks()
    nodes3.pause(0)
    manager = LockManager([client(url) for url in nodes3.urls], node_timeout=0.1, connect_timeout=0.2)
    async with manager:
        async with manager.lock("res"):
            pass
        assert state(manager, 0) is not NodeState.UP
    nodes3.resume(0)
    assert asyncio.all_tasks() == before


@pytest.mark.heavy
async def test_closing_waits_for_calls_that_outlast_their_rounds(
    nodes3: LocalNodes, client: MakeClient
) -> None:
    """The rounds have ended in silence, the calls have not: a release behind a slow acquire still leaves."""
    manager = LockManager([client(url) for url in nodes3.urls], node_timeout=3.0)
    async with manager:
        await up(manager)
        await works(manager)
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
        for i in range(3):
            nodes3.pause(i)
        acquiring = asyncio.create_task(manager.lock("res", ttl=60).acquire())
        await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) >= 3)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        closing = asyncio.create_task(manager.aclose())
        await eventually(lambda: manager.statistics().nodes[0].reason == "closed", what="the rounds are over")
        assert not closing.done()
        for i in range(3):
            nodes3.resume(i)
        await closing
    await eventually(empty(*nodes3.urls), what="the acquire is executed, and undone")


async def test_a_release_without_room_is_written_down(nodes3: LocalNodes, client: MakeClient) -> None:
    """So many releases wait for their acquires that one more cannot: the ledger has it (R5, R15)."""
    manager = LockManager([client(url, max_connections=100) for url in nodes3.urls], node_timeout=3.0)
    async with manager:
        await up(manager)
        lease = await manager.lock("res", ttl=60).acquire()
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls, "MAX_RELEASES", 0)
            report = await lease.release()
        assert {one.outcome for one in report.nodes} == {ReleaseOutcome.UNKNOWN}
        assert [node.owed for node in manager.statistics().nodes] == [1] * 3
        await eventually(lambda: not any(node.owed for node in manager.statistics().nodes))
        assert {one.outcome for one in (await lease.release()).nodes} == {ReleaseOutcome.RELEASED}
    assert empty(*nodes3.urls)()


async def test_a_release_called_again_knows_a_late_answer(nodes3: LocalNodes, client: MakeClient) -> None:
    """The call goes on when its time is up; what it has said in the end is in the next report."""
    async with LockManager([client(url) for url in nodes3.urls]) as manager:
        await up(manager)
        lease = await manager.lock("res", ttl=60).acquire()
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
        nodes3.pause(0)
        assert (await lease.release()).nodes[0].outcome is ReleaseOutcome.UNKNOWN
        nodes3.resume(0)
        await eventually(empty(*nodes3.urls))
        async with asyncio.timeout(10):
            # The call may have ended a turn of the loop before its answer is handed on.
            while {one.outcome for one in (await lease.release()).nodes} != {ReleaseOutcome.RELEASED}:
                await asyncio.sleep(0.01)


# -- slow and broken servers ---------------------------------------------------------------------


async def _slow(urls: list[str]) -> None:
    for url in urls:
        ask(url, "CONFIG RESETSTAT")
        ask(url, "CLIENT PAUSE", 1500, "ALL")


async def _over(urls: list[str]) -> None:
    """Wait until the pause is over; nothing else can be asked before."""
    await asyncio.gather(*(asyncio.to_thread(ask, url, "PING") for url in urls))


async def _undone(urls: list[str]) -> None:
    await _over(urls)
    await eventually(
        lambda: all("cmdstat_set" in ask(url, "INFO", "commandstats") for url in urls),
        what="the acquire is executed",
    )
    await eventually(empty(*urls), what="and undone")


@pytest.mark.heavy
@pytest.mark.parametrize("names", [("res",), ("res", "other")])
@pytest.mark.parametrize("ends", ["times out", "is cancelled"])
async def test_a_release_waits_for_the_end_of_a_slow_acquire(
    nodes3: LocalNodes, client: MakeClient, names: tuple[str, ...], ends: str
) -> None:
    """Calls of a pool overtake each other: the release is chained behind the acquire's call."""
    timeout = 0.2 if ends == "times out" else 5.0
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=timeout) as manager:
        await up(manager)
        await works(manager)  # every pool has its connections
        await _slow(nodes3.urls)
        acquiring = asyncio.create_task(manager.lock(*names, ttl=60, blocking_timeout=0).acquire())
        if ends == "times out":
            with pytest.raises(QuorumUnavailableError) as caught:
                await acquiring
            assert all(vote.reason.startswith("no answer within") for vote in caught.value.votes)
        else:
            await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) >= 3)
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring
        await _undone(nodes3.urls)


@pytest.mark.parametrize("kind", ["client", "url"])
async def test_a_manager_that_closes_behind_a_slow_acquire_undoes_it(
    nodes3: LocalNodes, client: MakeClient, kind: str
) -> None:
    """The acquire was cancelled and its nodes go on within the node_timeout: closing waits for that."""
    urls = nodes3.urls
    nodes = [client(url) for url in urls] if kind == "client" else urls
    manager = LockManager(nodes, node_timeout=5.0)
    async with manager:
        await up(manager)
        await works(manager)
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
        for i in range(3):
            ask(urls[i], "CONFIG RESETSTAT")
            nodes3.pause(i)
        acquiring = asyncio.create_task(manager.lock("res", ttl=60).acquire())
        await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) >= 3)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        closing = asyncio.create_task(manager.aclose())
        for _ in range(50):
            await asyncio.sleep(0)
        for i in range(3):
            nodes3.resume(i)
        await closing
    await _undone(urls)


@pytest.mark.heavy
async def test_a_release_waits_for_the_end_of_a_slow_extension(
    nodes3: LocalNodes, client: MakeClient
) -> None:
    """All calls of one owner are a chain, so that nothing of it comes after the release (R6)."""
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=2.0) as manager:
        await up(manager)
        lease = await manager.lock("res", ttl=60, extension=PLAIN).acquire()
        await _slow(nodes3.urls)
        extending = asyncio.create_task(lease.extend(90))
        await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) >= 3)
        report = await lease.release()
        assert report.count(ReleaseOutcome.RELEASED) == 3
        await asyncio.gather(extending, return_exceptions=True)
        await eventually(empty(*nodes3.urls))


async def test_a_frozen_node_costs_at_most_the_node_timeout(nodes3: LocalNodes, client: MakeClient) -> None:
    """One of three costs nothing; a majority costs the time given for one answer, and no more."""
    timeout = 0.3
    clients = [client(url) for url in nodes3.urls]
    async with LockManager(clients, node_timeout=timeout, connect_timeout=0.5) as manager:
        await up(manager)
        await works(manager)
        loop = asyncio.get_running_loop()
        nodes3.pause(0)
        began = loop.time()
        async with manager.lock("res", ttl=60):
            pass
        assert loop.time() - began < timeout, "the two others decide"
        nodes3.pause(1)
        began = loop.time()
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("other", ttl=60, blocking=False).acquire()
        assert loop.time() - began < 2 * timeout
        silent = [vote for vote in caught.value.votes if vote.vote is Vote.SILENT]
        assert len(silent) == 2
        assert all(vote.reason for vote in silent)
        for i in (0, 1):
            nodes3.resume(i)
        await up(manager)
        await works(manager)
        await eventually(empty(*nodes3.urls))


@pytest.mark.parametrize("retry", ["default", "none"])
async def test_what_a_frozen_server_grants_late_is_undone(
    nodes3: LocalNodes, client: MakeClient, retry: str
) -> None:
    """The client gave up and closed its connection; the server still executes what has arrived."""
    options: dict[str, Any] = {"socket_timeout": 0.1, "socket_connect_timeout": 0.1}
    if retry == "none":
        options["retry"] = Retry(NoBackoff(), 0)
    clients = [client(url, **options) for url in nodes3.urls]
    async with LockManager(clients, node_timeout=0.05) as manager:
        await up(manager)
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
        await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) == 0)
        await asyncio.sleep(0)
        await eventually(empty(*nodes3.urls), within=2 * LOOK_AFTER + 20)
        executed = [ask(url, "INFO", "commandstats").get("cmdstat_set") for url in nodes3.urls]
        assert any(executed), "at least one server did execute the acquire late"
        await works(manager)


class Network:
    """The way to a server; it may keep an acquire for a while, and lose what follows it on its connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.keeps = self.released = False
        self.kept: list[tuple[asyncio.StreamWriter, bytes]] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        back, there = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there]
        answers_task = asyncio.create_task(self._copy(back, writer))
        self._tasks.add(answers_task)
        lost = False
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.keeps and (_scripts.ACQUIRE.digest in data or _scripts.ACQUIRE_MANY.digest in data):
                    self.kept.append((there, data))
                    lost = True
                elif not lost:
                    there.write(data)
                    digests = (_scripts.RELEASE.digest, _scripts.RELEASE_MANY.digest)
                    self.released = self.released or any(digest in data for digest in digests)

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    def deliver(self) -> None:
        """Hand over what was kept, whichever side has closed its end meanwhile."""
        self.keeps = False
        for there, data in self.kept:
            there.write(data)

    async def close(self) -> None:
        """Drop every connection."""
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("kind", ["client", "url"])
async def test_an_acquire_that_the_network_delivers_behind_its_release_is_undone(
    make_nodes: Callable[..., LocalNodes], client: MakeClient, kind: str
) -> None:
    """The release over the next connection found nothing; it is repeated, and ends the ghost (R5)."""
    one = make_nodes(1)
    (url,) = one.urls
    network = Network(one.ports[0])
    server = await asyncio.start_server(network.carry, "127.0.0.1", 0)
    way = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = {"socket_timeout": 0.1, "retry": Retry(NoBackoff(), 0)}
    try:
        node = client(way, **options) if kind == "client" else way
        async with LockManager([node], node_timeout=0.5) as manager:
            await up(manager)
            await works(manager)
            network.keeps, network.released = True, False
            async with LockManager([url]) as direct, direct.lock("res"):
                pass
            counter = ask(url, "GET", "redlock:fence:{redlock:res}")
            with pytest.raises(QuorumUnavailableError):
                await manager.lock("res", ttl=60, blocking=False).acquire()
            if kind == "url":
                manager._life.nodes[0]._link.give_up("test")
            await eventually(lambda: network.released, what="the release has passed")
            assert network.kept
            assert ask(url, "GET", "redlock:fence:{redlock:res}") == counter
            network.deliver()
            await eventually(lambda: ask(url, "GET", "redlock:fence:{redlock:res}") != counter)
            await eventually(empty(url), within=2 * LOOK_AFTER + 20, what="the ghost is ended")
            await eventually(lambda: manager.statistics().nodes[0].owed == 0)
            await works(manager)
    finally:
        server.close()
        await network.close()


def dead_port() -> int:
    """Return a port where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_dead_port_costs_no_time(nodes3: LocalNodes, client: MakeClient) -> None:
    """A client retries a dead port for seconds; the manager starts, locks and closes without waiting."""
    loop = asyncio.get_running_loop()
    urls = [*nodes3.urls[:2], f"redis://127.0.0.1:{dead_port()}"]
    began = loop.time()
    async with LockManager([client(url) for url in urls], connect_timeout=0.3) as manager:
        for i in range(10):
            async with manager.lock(f"n{i}") as lease:
                assert lease.votes[2].vote is Vote.SILENT
                assert lease.votes[2].reason
        await eventually(lambda: state(manager, 2) is NodeState.DOWN)
        assert manager.statistics().nodes[2].reason
    assert loop.time() - began < 2.0


@pytest.mark.heavy
async def test_no_quorum_of_live_clients(nodes3: LocalNodes, client: MakeClient) -> None:
    """Two of three are dead: the error comes with a reason each; then they return."""
    clients = [client(url) for url in nodes3.urls]
    async with LockManager(clients, connect_timeout=0.3, node_timeout=2.0) as manager:
        await up(manager)
        nodes3.kill(0)
        nodes3.kill(1)

        async def acquire() -> None:
            lease = await manager.lock("res", blocking_timeout=0.2).acquire()
            await lease.release()
            pytest.fail(f"granted by {lease.votes}; servers: {nodes3!r}; {manager.statistics()}")

        with pytest.raises(QuorumUnavailableError) as caught:
            await acquire()
        votes = caught.value.votes
        assert [vote.vote for vote in votes] == [Vote.SILENT, Vote.SILENT, Vote.GRANTED]
        assert all(vote.reason for vote in votes[:2])
        await eventually(lambda: state(manager, 0) is NodeState.DOWN)
        for i in (0, 1):
            await nodes3.restart(i)
        await up(manager)
        await works(manager)


@pytest.mark.heavy
async def test_a_held_lock_survives_the_loss_of_every_connection(
    nodes3: LocalNodes, client: MakeClient
) -> None:
    """The pool connects anew; the lease is extended as before."""
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=0.3) as manager:
        await up(manager)
        async with manager.lock("res", ttl=3.0) as lease:
            for _ in range(2):
                extensions = lease.extensions
                for url in nodes3.urls:
                    kill_connections(url)
                await eventually(lambda before=extensions: lease.extensions > before)
            assert lease.held
        await eventually(empty(*nodes3.urls))


@pytest.mark.heavy
async def test_a_pooled_connection_that_the_server_closed_costs_no_vote(
    nodes3: LocalNodes, client: MakeClient
) -> None:
    """A pool may hold many dead connections while the server is well: the look at it takes a new one."""
    went: list[str] = []

    class Watching:
        """Hears of the nodes' states."""

        def on_node_changed(self, event: Any) -> None:
            """Write it down."""
            went.append(event.state.value)

    clients = [client(url) for url in nodes3.urls]
    async with LockManager(clients, connect_timeout=10.0, hooks=[Watching()]) as manager:
        await up(manager)

        def looks() -> list[float | None]:
            return [node.round_trip for node in manager.statistics().nodes]

        for _ in range(2):
            for each in clients:
                await asyncio.gather(*(each.ping() for _ in range(POOLED)))
            before = looks()
            for url in nodes3.urls:
                kill_connections(url)
            await eventually(
                lambda before=before: not any(map(operator.eq, looks(), before)),
                within=2 * LOOK_AFTER + 60,
            )
        assert went == ["up"] * 3


@pytest.mark.heavy
async def test_a_pool_that_cannot_close_what_is_idle_does_no_harm(nodes3: LocalNodes) -> None:
    """As one with connections of a loop that is closed: the node is down like any, and comes back."""

    class Stubborn(ConnectionPool):
        """Says what an asyncio transport of a closed loop does."""

        asked = 0

        async def disconnect(self, inuse_connections: bool = True) -> None:
            """Fail, unless everything is to be closed."""
            if not inuse_connections:
                self.asked += 1
                raise RuntimeError("Event loop is closed")
            await super().disconnect(inuse_connections)

    pools = [Stubborn.from_url(url) for url in nodes3.urls]
    async with contextlib.AsyncExitStack() as stack:
        for pool in pools:
            stack.push_async_callback(pool.disconnect)
        clients = [Redis(connection_pool=pool) for pool in pools]
        manager = await stack.enter_async_context(LockManager(clients, connect_timeout=2.0))
        await up(manager)
        first = manager.statistics().nodes[0].round_trip
        await eventually(lambda: manager.statistics().nodes[0].round_trip != first)  # it has looked again
        nodes3.kill(0)
        await eventually(lambda: state(manager) is NodeState.DOWN)
        assert pools[0].asked
        assert "RuntimeError" not in manager.statistics().nodes[0].reason
        await nodes3.restart(0)
        await up(manager)
        await works(manager)


async def test_a_lost_lock_ends_the_body(nodes3: LocalNodes, client: MakeClient) -> None:
    """Deleted on a majority: the next extension is refused and the body is cancelled."""

    async def lose(manager: LockManager) -> None:
        async with manager.lock("res", ttl=1.5):
            await eventually(lambda: all(map(lock_keys, nodes3.urls)))
            for url in nodes3.urls[:2]:
                ask(url, "DEL", "redlock:res")
            await asyncio.sleep(60)

    async with LockManager([client(url) for url in nodes3.urls], node_timeout=0.3) as manager:
        await up(manager)
        with pytest.raises(LockLostError) as caught:
            await lose(manager)
        assert caught.value.reason is LossReason.REFUSED
        await eventually(empty(*nodes3.urls))


async def test_a_key_lost_on_a_minority_is_given_back(nodes3: LocalNodes, client: MakeClient) -> None:
    """A won extension tops up the node that had lost it (R9)."""
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=1.0) as manager:
        await up(manager)
        async with manager.lock("res", ttl=30, extension=PLAIN) as lease:
            await eventually(lambda: all(ask(url, "EXISTS", "redlock:res") for url in nodes3.urls))
            ask(nodes3.urls[0], "DEL", "redlock:res")
            await lease.extend(60)
            await eventually(lambda: ask(nodes3.urls[0], "TTL", "redlock:res") > 50)
        await eventually(empty(*nodes3.urls))


async def test_forgotten_scripts_are_invisible(nodes3: LocalNodes, client: MakeClient) -> None:
    """NOSCRIPT is answered with the script itself, call by call."""
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=1.0) as manager:
        await up(manager)
        for _ in range(3):
            for url in nodes3.urls:
                ask(url, "SCRIPT FLUSH")
            await works(manager)
        assert [node.owed for node in manager.statistics().nodes] == [0, 0, 0]


async def test_random_cancellations_leave_nothing(nodes3: LocalNodes, client: MakeClient) -> None:
    """Two hundred acquires, each cancelled after some turns of the loop: no key stays."""
    chance = random.Random(7)
    async with LockManager([client(url) for url in nodes3.urls], node_timeout=2.0) as manager:
        await up(manager)

        async def use(number: int) -> None:
            async with manager.lock(f"n{number % 10}", ttl=60):
                await asyncio.sleep(0)

        async def cancel(number: int, turns: int) -> None:
            task = asyncio.create_task(use(number))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))

        await asyncio.gather(*(cancel(number, chance.randrange(60)) for number in range(200)))
        await eventually(lambda: sum(node.in_flight for node in manager.statistics().nodes) == 0)
        await eventually(empty(*nodes3.urls))
        assert manager.statistics().held == 0


# -- what clients say instead of an answer -------------------------------------------------------


@pytest.mark.parametrize("decode", [False, True])
async def test_another_programs_value_may_be_any_bytes(
    nodes3: LocalNodes, client: MakeClient, decode: bool
) -> None:
    """A client that cannot decode it costs its own vote on the inspection, and nothing else."""
    for url in nodes3.urls:
        ask(url, "SET", "redlock:res", b"\xff\xfe")
    clients = [client(nodes3.urls[0], decode_responses=decode), *nodes3.urls[1:]]
    async with LockManager(clients, node_timeout=0.3) as manager:
        await up(manager)
        with pytest.raises(LockTakenError):
            await manager.lock("res", blocking=False).acquire()
        entries = await manager.inspect("res")
        assert [entry.held for entry in entries[1:]] == [True, True]
        assert (entries[0].held, bool(entries[0].reason)) == ((None, True) if decode else (True, False))
        assert "no answer within" not in entries[0].reason


@pytest.mark.parametrize("words", ["wr0ng", ""])
async def test_a_wrong_password_is_a_reason_and_no_secret(
    make_nodes: Callable[..., LocalNodes], client: MakeClient, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    """The vote says what the server said; no password is in any text of ours."""
    caplog.set_level(logging.DEBUG, logger="aioredlock_ng")
    nodes = make_nodes(1, options={"requirepass": PASSWORD})
    (url,) = nodes.urls
    options = {"password": words} if words else {}
    async with LockManager([client(url, **options)]) as manager:
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("res", blocking=False).acquire()
        (vote,) = caught.value.votes
        assert re.search("password|authenticat", vote.reason, re.IGNORECASE)
        text = "\n".join([repr(manager), str(manager.statistics()), str(caught.value), caplog.text])
    assert PASSWORD not in text
    assert "wr0ng" not in text


async def test_a_right_password_works_and_is_not_shown(
    make_nodes: Callable[..., LocalNodes], client: MakeClient
) -> None:
    """The node is named by host and port."""
    nodes = make_nodes(1, options={"requirepass": PASSWORD})
    async with LockManager([client(nodes.urls[0], password=PASSWORD)]) as manager:
        await up(manager)
        await works(manager)
        assert PASSWORD not in repr(manager)
        assert f"client:127.0.0.1:{nodes.ports[0]}" in repr(manager)


async def test_a_replica_behind_a_client_is_a_reason(
    make_nodes: Callable[..., LocalNodes], client: MakeClient
) -> None:
    """READONLY is silence with its reason; a release that met it is repeated."""
    (url,) = make_nodes(1).urls
    async with LockManager([client(url, retry=Retry(NoBackoff(), 0))], node_timeout=1.0) as manager:
        await up(manager)
        lease = await manager.lock("held", ttl=30).acquire()
        ask(url, "REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("res", blocking=False).acquire()
        assert re.search("read.?only", caught.value.votes[0].reason, re.IGNORECASE)
        (report,) = (await lease.release()).nodes
        assert report.outcome == "unknown"
        ask(url, "REPLICAOF", "NO", "ONE")
        await eventually(empty(url), what="the release is repeated")


async def test_an_unknown_command_is_a_reason_without_the_owner(
    make_nodes: Callable[..., LocalNodes], client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers echo the arguments of a command that they do not know."""
    caplog.set_level(logging.DEBUG, logger="aioredlock_ng")
    nodes = make_nodes(1, options={"rename-command": ["SET", "HIDDEN"]})
    async with LockManager([client(nodes.urls[0])], fencing=False) as manager:
        await eventually(lambda: state(manager) is not NodeState.CONNECTING)
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("res", blocking=False).acquire()
        assert "unknown command 'SET'" in caught.value.votes[0].reason
        assert not re.search("[0-9a-f]{30}", str(caught.value) + caplog.text)


class Faulty(CredentialProvider):
    """A user's own code that fails with an error of its own."""

    def get_credentials(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")

    async def get_credentials_async(self) -> Any:
        """Fail."""
        raise KeyError("no such vault")


@pytest.mark.heavy
async def test_a_client_that_fails_in_its_own_way_does_no_harm(
    make_nodes: Callable[..., LocalNodes], client: MakeClient
) -> None:
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
async def test_the_answer_to_another_call_counts_for_nothing(nodes3: LocalNodes) -> None:
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
    """A client that notes the tags of the scripts that it calls, and how many it calls at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tags: list[bytes] = []
        self.now = self.most = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute it, when all that begin in this turn of the loop have begun."""
        if args[0] != "EVALSHA":
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.tags.append(args[-1])
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        finally:
            self.now -= 1


@pytest.mark.heavy
async def test_managers_that_share_a_client_share_no_tag(nodes3: LocalNodes) -> None:
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
async def test_what_is_owed_is_repeated_as_far_as_there_is_room(
    nodes3: LocalNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long ledger does not fill the loop with calls: those beyond the limit are made later (R5, R15)."""
    async with Noting(port=nodes3.ports[0]) as client, LockManager([client], prefix="alone:") as manager:
        await up(manager)
        await eventually(lambda: not any(node.in_flight for node in manager.statistics().nodes))
        node, mutex = manager._life.nodes[0], Primitive(MUTEX, ("res",), (b"alone:res",))
        monkeypatch.setattr(calls, "MAX_RELEASES", 3)
        client.most = 0
        for number in range(5):
            node._ledger.record(mutex.release(b"%d" % number, 600.0), node.env.clock.now())
        await eventually(lambda: not node.standing.owed)
        assert client.most == 3


@pytest.mark.heavy
async def test_calls_are_bounded(
    nodes3: LocalNodes, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand acquires against servers that stand still: refused or timed out, and all undone."""
    clients = [client(url, max_connections=2000) for url in nodes3.urls]
    monkeypatch.setattr(
        calls, "MAX_CALLS", MAX_TRIES_BY_CLIENTS // 2
    )  # fewer than leave in one turn of the loop
    async with LockManager(clients, node_timeout=0.3, connect_timeout=5.0) as manager:
        await up(manager)
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


@pytest.mark.heavy
async def test_what_a_release_is_told_later_reaches_no_other_round(
    nodes3: LocalNodes, client: MakeClient
) -> None:
    """An extension that is answered while a release of its owner is recorded hears nothing of that answer."""
    async with LockManager([client(nodes3.urls[0])], prefix="alone:") as manager:
        await up(manager)
        lease = await manager.lock("res", extension=PLAIN).acquire()
        node, heard = manager._life.nodes[0], Replies()
        mutex, owner = Primitive(MUTEX, ("res",), (b"alone:res",)), lease._holding.owner
        node._ledger.record(
            mutex.release(owner, 10.0), node.env.clock.now()
        )  # as a call that has failed does
        node.submit(mutex.extend(owner, 10.0), heard, 0)
        await eventually(lambda: heard.replies and not node.standing.owed, within=2 * LOOK_AFTER + 20)
        assert len(heard.replies) == 1
        await lease.release()


async def test_what_comes_after_the_end_or_a_fork_is_told_so(
    nodes3: LocalNodes, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the reason, and that nothing was sent: no call is begun (R15)."""
    ping, forked, closed = heartbeat(b"x"), Replies(), Replies()
    async with LockManager([client(url) for url in nodes3.urls]) as manager:
        await up(manager)
        assert manager._life.session is not None
        node = manager._life.session.nodes[0]
        with monkeypatch.context() as patch:
            patch.setattr(client_node, "generation", lambda: -2)
            node.submit(ping, forked, 0)
    node.submit(ping, closed, 0)
    assert forked.replies == [Silence("the connection belongs to another process", sent=False)]
    assert closed.replies == [Silence("closed", sent=False)]


def test_a_client_node_shows_its_state() -> None:
    """Its repr is its name and where it stands."""
    node = ClientNode(Redis(host="example", port=6380, password=PASSWORD))
    assert repr(node) == "<ClientNode client:example:6380 connecting>"


def test_a_pool_without_an_address_leads_to_the_usual_one() -> None:
    """A server that is given twice is found, though one of its pools leaves the address to redis-py (A4)."""
    node = ClientNode(Redis(connection_pool=ConnectionPool()))
    assert node.name == "client:localhost:6379"
    assert node.address == ClientNode(Redis()).address
