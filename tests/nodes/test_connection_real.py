"""Nodes reached by URL, on real servers: how one logs in, and what every fault costs and says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import struct
import sys

import pytest
import redis

from aioredlock_ng import ConfigurationError, LockManager
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._node import NodeState
from aioredlock_ng._node.link import Link
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng.testing import LocalNodes
from tests.nodes.tools import (
    NAME,
    denied,
    denied_because,
    leads_to,
    listening,
    running,
    state,
    up,
    works,
)
from tests.servers import ask, eventually, free_port, kill_connections, lock_keys
from tests.tls import make_certificates, proven, serve_tls

PASSWORD = "s3cret-pass"


@pytest.fixture
def one(make_nodes):
    """Give one server for this test alone."""
    return make_nodes(1)


@pytest.fixture
def url(one):
    """Give its URL."""
    return one.urls[0]


def redis_node(manager: LockManager, i: int = 0) -> Node:
    """Return a manager's node."""
    node = manager._life.nodes[i]
    assert isinstance(node, Node)
    return node


def give_up(manager: LockManager) -> Link:
    """Give the connection of a manager's first node up; returns it."""
    link = redis_node(manager)._link
    assert link is not None
    link.give_up("test")
    return link


# -- logging in ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Make an authority and its certificates, and one that is not of it."""
    make_certificates(folder := tmp_path_factory.mktemp("certificates"))
    return folder


@pytest.fixture
def tls_nodes(make_nodes, certificates):
    """Give three servers that speak TLS only."""
    return serve_tls(make_nodes, certificates, 3)


@pytest.fixture
def tls_urls(tls_nodes, certificates):
    """Give their URLs for clients that ask for the authority's proof."""
    return [proven(url, certificates) for url in tls_nodes.urls]


@pytest.mark.parametrize("frozen", [False, True], ids=["", "one stands still"])
@pytest.mark.parametrize("way", ["plain", "TLS"])
async def test_closing_leaves_no_socket_open(request, way, frozen):
    """When `aclose` has returned the loop may end: nothing waits for a peer's good-bye (R18)."""
    nodes: LocalNodes = request.getfixturevalue("tls_nodes" if way == "TLS" else "nodes3")
    given = request.getfixturevalue("tls_urls") if way == "TLS" else nodes.urls
    manager = LockManager(given, connect_timeout=5.0)
    async with manager:
        await up(manager)
        await works(manager)
        links = [redis_node(manager, i)._link for i in range(3)]
        sockets = [link.transport.get_extra_info("socket") for link in links if link is not None]
        if frozen:
            nodes.pause(0)
        async with manager.lock("res", ttl=60):
            pass
    assert [sock.fileno() for sock in sockets] == [-1] * 3
    nodes.resume(0)
    # Over TLS a server reads record by record, and reads no further once an answer cannot be written.  With a
    # heartbeat between them the acquire is executed and its release is not; then the key ends with its ttl.
    urls = nodes.urls[1:] if frozen and way == "TLS" else nodes.urls
    await eventually(lambda: not any(map(lock_keys, urls)))


@pytest.mark.parametrize("wrong", ["authority", "name", "plain text"])
async def test_another_peer_than_the_urls_is_refused(tls_nodes, tls_urls, monkeypatch, wrong):
    """The reason says so, and the others decide.  It is not the address that counts, whichever is reached."""
    leads_to(monkeypatch, ("127.0.0.1", tls_nodes.ports[2]))
    localhost, *urls = (url.replace("//127.0.0.1", "//localhost") for url in tls_urls)
    other = {
        "authority": urls[1].replace("ca.crt", "client.crt"),
        "name": tls_urls[2].replace("//127.0.0.1", f"//{NAME}"),
        "plain text": tls_urls[2].replace("rediss", "redis").partition("?")[0],
    }[wrong]
    async with LockManager([localhost, urls[0], other], connect_timeout=5.0) as manager:
        await works(manager)
        await eventually(lambda: state(manager, 2) is NodeState.DOWN)
        reason = manager.statistics().nodes[2].reason
        assert wrong == "plain text" or "certificate" in reason.lower(), reason
        assert wrong != "name" or f"at 127.0.0.1:{tls_nodes.ports[2]}" in reason


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (f":{PASSWORD}@", None),
        (f"default:{PASSWORD}@", None),
        (":wr0ng-pass@", "password"),
        ("nobody:wr0ng-pass@", "password"),
        ("", "authentication required"),
    ],
)
async def test_passwords(make_nodes, caplog, login, words):
    """The right one works; a wrong or missing one is a vote with its reason, and none shows anywhere."""
    caplog.set_level(logging.DEBUG)
    nodes = make_nodes(3, options={"requirepass": PASSWORD}, url=f"redis://{login}127.0.0.1:{{port}}")
    manager = LockManager(nodes.urls)
    said = [repr(manager), str(manager.statistics())]
    async with manager:
        if words is None:
            await up(manager)
            await works(manager)
        else:
            votes = await denied(manager)
            assert [vote.vote for vote in votes] == [Vote.SILENT] * 3
            assert all(words in vote.reason.lower() for vote in votes), votes
            said.append(repr(votes))
        said += [repr(manager), str(manager.statistics()), repr(manager.lock("a"))]
    text = "\n".join([*said, caplog.text])
    assert PASSWORD not in text
    assert "wr0ng" not in text
    assert f"127.0.0.1:{nodes.ports[0]}" in text


async def test_unix_sockets(make_nodes):
    """A socket in the file system is an address like any, also when it is gone and comes back."""
    nodes = make_nodes(3, options={"unixsocket": "{dir}/socket"}, url="unix://{dir}/socket")
    async with running(nodes.urls) as manager:
        await works(manager)
        nodes.kill(0)
        await eventually(lambda: state(manager) is NodeState.DOWN)
        await works(manager)
        await nodes.restart(0)
        await up(manager)
        link = give_up(manager)  # no linger on a unix socket
        await eventually(lambda: redis_node(manager)._link not in (link, None))


async def test_a_database_number(url):
    """The keys are where the URL says, also after a new connection; one that is not there is a reason."""
    async with LockManager([f"{url}/3"], node_timeout=1.0) as manager:
        for _ in range(2):
            async with manager.lock("res"):
                assert not lock_keys(url)
                assert lock_keys(f"{url}/3") == [b"redlock:res"]
            kill_connections(url)
            await eventually(lambda: state(manager) is NodeState.DOWN)
            await up(manager)
    async with LockManager([f"{url}/99"]) as manager:
        assert "out of range" in await denied_because(manager)


async def test_one_server_under_two_addresses_is_no_quorum(one):
    """It would vote twice: the manager finds out by the server's own name for itself (A4)."""
    (port,) = one.ports
    manager = LockManager([f"redis://127.0.0.1:{port}", f"redis://127.0.0.2:{port}"], connect_timeout=2.0)
    if not sys.platform.startswith("linux"):
        pytest.skip("127.0.0.2 is an address of this machine on Linux only")
    ask(one.urls[0], "CONFIG SET", "bind", "127.0.0.1 127.0.0.2")
    with pytest.raises(ConfigurationError, match="the same server"):
        await manager.start()
    with pytest.raises(ConfigurationError, match="the same server"):
        await manager.lock("res").acquire()
    await manager.aclose()


# -- what servers say instead of a vote ----------------------------------------------------------


async def test_a_server_in_an_endless_script_is_busy(url):
    """BUSY is a reason, for a new connection too; a release that met it is repeated."""
    ask(url, "CONFIG SET", "lua-time-limit", "20")

    def endless():
        with pytest.raises(redis.ResponseError, match="killed"):
            ask(url, "EVAL", "while true do end", 0)

    def busy():
        try:
            ask(url, "PING")
        except redis.ResponseError as error:
            return str(error).startswith("BUSY")
        return False

    async with LockManager([url], node_timeout=0.5) as manager:
        lease = await manager.lock("held", ttl=30).acquire()
        script = asyncio.create_task(asyncio.to_thread(endless))
        await eventually(busy, what="the server is busy")
        assert (await denied_because(manager)).startswith("BUSY")
        (report,) = (await lease.release()).nodes
        assert report.reason.startswith("BUSY")
        give_up(manager)
        await eventually(lambda: "busy" in manager.statistics().nodes[0].reason.lower())
        assert "busy" in (await denied_because(manager)).lower()
        ask(url, "SCRIPT KILL")
        await script
        await up(manager)
        await eventually(lambda: not lock_keys(url), what="the release is repeated")
        await works(manager)


# -- connections that end, stall, or never were one ----------------------------------------------


async def _says(what: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        writer.write(what)


async def _closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _keeps_quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


PEERS = {
    "closes": _closes,
    "keeps quiet": _keeps_quiet,
    "HTTP": functools.partial(_says, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "noise": functools.partial(_says, b"\x16\x03\x01\x02\x00"),
    "only integers": functools.partial(_says, b":1\r\n" * 8),
    "only nil": functools.partial(_says, b"$-1\r\n" * 8),
    "only OK": functools.partial(_says, b"+OK\r\n" * 8),
    "only lists": functools.partial(_says, b"*1\r\n:1\r\n" * 8),
    "only errors": functools.partial(_says, b"-ERR no\r\n" * 8),
    "odd errors": functools.partial(_says, b"-\r\n" * 8),
}


NOWHERE = ("a" * 64 + ".example", "two..dots", "127.0.0.1")


@pytest.mark.parametrize("peer", [*PEERS, *NOWHERE])
async def test_a_peer_that_is_no_redis_does_no_harm(nodes3, peer):
    """It is a silent vote with a reason; the other nodes go on, and the manager closes as always.

    So are a name that is none, and a port where nothing listens.
    """
    async with contextlib.AsyncExitStack() as stack:
        if peer in NOWHERE:
            url = f"redis://{peer}:{free_port()}"
        else:
            url = await stack.enter_async_context(listening(PEERS[peer]))
        manager = LockManager([*nodes3.urls[:2], url], connect_timeout=0.3)
        async with manager:
            for _ in range(3):
                lease = await asyncio.wait_for(manager.lock("res", ttl=1.0).acquire(), 60)
                assert lease.votes[2].vote is Vote.SILENT
                assert lease.votes[2].reason
                await lease.release()
            await eventually(lambda: state(manager, 2) is NodeState.DOWN)
            assert manager.statistics().nodes[2].reason
            lease = await manager.lock("res", ttl=0.6).acquire()
            await eventually(lambda: lease.extensions >= 2, what="the watchdog lives")
            await lease.release()


async def test_a_connection_is_reset_when_it_is_given_up_and_watched_by_the_kernel(one):
    """A plain close would let the kernel deliver an old acquire later; a vanished peer is noticed (R5)."""
    async with running(one.urls) as manager:
        link = redis_node(manager)._link
        assert link is not None
        sock = link.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert 1_000 <= sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 10_000, "ms"
        link.give_up("test")
        assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 0)
        await eventually(lambda: redis_node(manager)._link not in (link, None))


@pytest.mark.parametrize("other", ["/1", "/", "?socket_keepalive=1"])
def test_one_address_given_twice_is_refused_at_once(other):
    """Database numbers and options do not make a second server."""
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:7000"):
        LockManager(["redis://127.0.0.1:7000", f"redis://user:{PASSWORD}@127.0.0.1:7000{other}"])
