"""Nodes by a URL of Redis Sentinels, which are real here: where the master is, and what a failover costs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection
from redis.exceptions import ResponseError

from aioredlock_ng import ConfigurationError, LockManager, NodeStatistics, QuorumUnavailableError
from aioredlock_ng._node import NodeState, redis_sentinel
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng._settings.specs import split_urls
from tests.nodes.tools import listening, run_id, running, server_of, up
from tests.redis_sentinels import running_sentinel, watching
from tests.servers import ask, eventually, free_port, lock_keys

PATIENT = 1.0
PREFIX = "alone:"
"""Of managers with another number of nodes than there are servers: those have been made fresh for all."""

PASSWORD = "s3cret-pass"
OTHER_PASSWORD = "0ther-pass"
Run = Callable[..., int]


@pytest.fixture
def run(tmp_path):
    """Give a function that runs a Sentinel with these lines of configuration, and returns its port."""
    with contextlib.ExitStack() as stack:
        numbers = iter(range(10))

        def start(*lines):
            return stack.enter_context(running_sentinel(tmp_path / f"sentinel{next(numbers)}", *lines))

        yield start


@pytest.fixture
async def pair(make_nodes):
    """Give a master and its replica, which has caught up."""
    nodes = make_nodes(2, options={"repl-diskless-sync-delay": 0})
    ask(nodes.urls[1], "REPLICAOF", "127.0.0.1", nodes.ports[0])
    await eventually(
        lambda: ask(nodes.urls[1], "INFO", "replication").get("master_link_status") == "up", within=30
    )
    return nodes


def node_of(manager: LockManager) -> NodeStatistics:
    """Return what a manager says of its first node."""
    return manager.statistics().nodes[0]


def begun(sentinel: str) -> bool:
    """Ask for a failover; return False when no replica is fit for it yet."""
    try:
        ask(sentinel, "SENTINEL FAILOVER", "main")
    except ResponseError as error:
        if "NOGOODSLAVE" not in str(error):
            raise
        return False
    return True


async def test_a_redis_sentinel_url_is_a_node_like_any(run, nodes3):
    """On one connection, with notices; it is named after its Sentinels and the service."""
    port = run(*watching("main", nodes3.ports[0]))
    url = f"redis+sentinel://127.0.0.1:{port}/main"
    async with running([url, *nodes3.urls[1:]], node_timeout=PATIENT) as manager:
        assert node_of(manager).name == url
        assert isinstance(manager._life.nodes[0], Node)
        assert manager._life.nodes[0].can_hear
        async with manager.lock("res") as lease:
            await lease.extend()
            assert lock_keys(nodes3.urls[0]) == [b"redlock:res"]
        await eventually(lambda: not lock_keys(nodes3.urls[0]))


@pytest.mark.heavy
@pytest.mark.parametrize(("by", "how"), [("url", "killed"), ("url", "asked for"), ("client", "killed")])
async def test_a_master_is_followed_by_its_replica(run, pair, make_nodes, by, how):
    """The lease goes on by the majority; the new master is quarantined, then votes."""
    port = run(*watching("main", pair.ports[0]))
    sentinel = f"redis://127.0.0.1:{port}"
    await eventually(lambda: ask(sentinel, "SENTINEL MASTER", "main")["num-slaves"] == 1, within=30)
    node = Sentinel([("127.0.0.1", port)]).master_for("main")
    nodes = [f"redis+sentinel://127.0.0.1:{port}/main" if by == "url" else node, *make_nodes(2).urls]
    settings = {"node_timeout": PATIENT, "ttl": 2.0, "restart_quarantine": 2.0, "prefix": PREFIX}
    async with LockManager(nodes, **settings) as manager:
        await manager.init()
        await up(manager)
        async with manager.lock("res") as lease:
            if how == "killed":
                pair.kill(0)
            else:
                await eventually(lambda: begun(sentinel), within=30, what="its replica may be promoted")
            await eventually(lambda: node_of(manager).state is NodeState.QUARANTINED, within=30)
            assert server_of(manager) == run_id(pair.urls[1])
            await up(manager)
            assert lease.held
            await eventually(lambda: lock_keys(pair.urls[1], PREFIX) == [b"alone:res"], within=10)


class Mapped(Sentinel):
    """Sentinels whose addresses hold in another network."""

    async def discover_master(self, service_name):
        """Map the address."""
        host, port = await super().discover_master(service_name)
        return host, self.ports[port]


class Managed(SentinelManagedConnection):
    """A user's own connection class."""


@pytest.mark.parametrize("own", ["none", "connection class", "discover_master", "force_master_ip"])
async def test_a_client_made_by_sentinel(run, nodes3, own):
    """Its Sentinels are asked on connections of ours; what its user has of their own is done."""
    port = run(*watching("main", nodes3.ports[1 if own == "discover_master" else 0]))
    if own == "force_master_ip" and own not in inspect.signature(Sentinel).parameters:
        pytest.skip("this version of redis-py has none")
    options = {"force_master_ip": "localhost"} if own == "force_master_ip" else {}
    sentinel = (Mapped if own == "discover_master" else Sentinel)([("127.0.0.1", port)], **options)
    sentinel.ports = {nodes3.ports[1]: nodes3.ports[0]}
    made = sentinel.master_for("main", **({"connection_class": Managed} if own == "connection class" else {}))
    async with contextlib.AsyncExitStack() as stack:
        for client in (made, *sentinel.sentinels):
            stack.push_async_callback(client.aclose)
        manager = await stack.enter_async_context(running([made], node_timeout=PATIENT, prefix=PREFIX))
        assert node_of(manager).name == "client:sentinel:main"
        assert server_of(manager) == run_id(nodes3.urls[0])
        async with manager.lock("res") as lease:
            await lease.extend()
            assert lock_keys(nodes3.urls[0], PREFIX) == [b"alone:res"]


async def test_a_master_that_its_sentinels_have_given_up_is_left(run, nodes3, monkeypatch, caplog):
    """It may be cut off from them and not from us: it does not vote beside the new one for long."""
    monkeypatch.setattr(redis_sentinel, "LOOK_AFTER", 0.2)
    port = run(*watching("main", nodes3.ports[0]))
    sentinel = f"redis://127.0.0.1:{port}"
    async with running(
        [f"redis+sentinel://127.0.0.1:{port}/main"], node_timeout=PATIENT, prefix=PREFIX
    ) as manager:
        ask(sentinel, "SENTINEL REMOVE", "main")
        await asyncio.sleep(0.5)
        assert node_of(manager).state is NodeState.UP, "to know nothing is no reason to leave"
        ask(sentinel, "SENTINEL MONITOR", "main", "127.0.0.1", nodes3.ports[1], 1)
        await eventually(lambda: server_of(manager) == run_id(nodes3.urls[1]))
        assert "the Redis Sentinels name another master" in caplog.text
    await eventually(lambda: len(asyncio.all_tasks()) == 1, what="a closed connection is not followed")


@contextlib.asynccontextmanager
async def odd(answer: bytes) -> AsyncIterator[int]:
    """Run a Sentinel with that answer to the question where a master is; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(answer if b"GET-MASTER" in data else b"+OK\r\n" * data.count(b"*"))

    async with listening(serve) as url:
        yield int(url.rpartition(":")[2])


async def test_sentinels_that_do_not_answer_are_passed_over(run, nodes3, make_nodes):
    """A dead, a frozen, a broken one, and one that knows nothing; then the good one is asked first."""
    frozen = make_nodes(1)
    frozen.pause(0)
    port = run(*watching("main", nodes3.ports[0]))
    a_list_as_a_key = b"%1\r\n*0\r\n:1\r\n"  # which breaks a parser
    async with odd(a_list_as_a_key) as broken:
        ports = (free_port(), frozen.ports[0], broken, run(), port)
        url = f"redis+sentinel://{','.join(f'127.0.0.1:{one}' for one in ports)}/main"
        async with running([url], node_timeout=PATIENT, prefix=PREFIX) as manager:
            for _ in range(2):
                ask(nodes3.urls[0], "CLIENT KILL", "TYPE", "normal")
                began = time.monotonic()
                await eventually(lambda: node_of(manager).state is not NodeState.UP)
                await up(manager)
            node = manager._life.nodes[0]
            assert isinstance(node, Node)
            assert node._endpoint._redis_sentinels._hosts[0] == ("127.0.0.1", port)  # type: ignore[attr-defined]
            assert time.monotonic() - began < 20


async def test_passwords_of_both(run, make_nodes, caplog):
    """The URL's own is the master's, the Sentinels' are options; neither is shown, right or wrong."""
    caplog.set_level(logging.DEBUG)
    nodes = make_nodes(1, options={"requirepass": PASSWORD}, url=f"redis://:{PASSWORD}@127.0.0.1:{{port}}")
    auth = f"sentinel auth-pass main {PASSWORD}"
    port = run(*watching("main", nodes.ports[0], auth, f"requirepass {OTHER_PASSWORD}"))
    place = f"127.0.0.1:{port}/main"
    right = f"redis+sentinel://:{PASSWORD}@{place}?sentinel_password={OTHER_PASSWORD}"
    async with running([right], node_timeout=PATIENT, prefix=PREFIX) as manager, manager.lock("res"):
        said = [repr(manager), str(manager.statistics())]
    for wrong in (
        f"redis+sentinel://:{PASSWORD}@{place}",
        f"redis+sentinel://:{PASSWORD}@{place}?sentinel_password={PASSWORD}",
        f"redis+sentinel://{place}?sentinel_password={OTHER_PASSWORD}",
    ):
        async with LockManager([wrong], node_timeout=PATIENT, prefix=PREFIX) as manager:
            with pytest.raises(QuorumUnavailableError) as caught:
                await manager.lock("res", blocking=False).acquire()
            assert "auth" in str(caught.value).lower() or "password" in str(caught.value)
            findings = await manager.diagnose()
            assert any("password" in one.advice for one in findings), findings
            said += [str(caught.value), repr(findings), str(manager.statistics())]
    text = "\n".join([*said, caplog.text])
    assert PASSWORD not in text
    assert OTHER_PASSWORD not in text


async def test_a_password_that_a_sentinel_repeats_is_not_shown():
    """Only the kind of its error is left."""
    error = f"-ERR no user is {OTHER_PASSWORD}\r\n".encode()
    async with odd(error) as port:
        url = f"redis+sentinel://127.0.0.1:{port}/main?sentinel_password={OTHER_PASSWORD}"
        async with LockManager([url]) as manager:
            assert f"127.0.0.1:{port}: ResponseError" in node_of(manager).reason


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nothing there", "onnect"),
        ("another service", "it does not know the service 'main'"),
        ("no Sentinel", "unknown command"),
        ("no address", "its reply is malformed"),
    ],
)
async def test_why_there_is_no_master(run, nodes3, fault, words):
    """The reason names each Sentinel with its own, and the doctor has advice."""
    async with odd(b"*1\r\n$1\r\nx\r\n") as malformed:
        port = {
            "nothing there": free_port,
            "another service": lambda: run(*watching("other", nodes3.ports[0])),
            "no Sentinel": lambda: nodes3.ports[0],
            "no address": lambda: malformed,
        }[fault]()
        url = f"redis+sentinel://127.0.0.1:{port}/main"
        async with LockManager([url], node_timeout=PATIENT, prefix=PREFIX) as manager:
            with pytest.raises(QuorumUnavailableError) as caught:
                await manager.lock("res", blocking=False).acquire()
            reason = caught.value.votes[0].reason
            where = f"no Redis Sentinel reported the master of 'main': 127.0.0.1:{port}: "
            assert reason.startswith(where)
            assert words in reason
            (finding,) = [one for one in await manager.diagnose() if one.node is not None]
            assert "Redis Sentinels" in finding.advice


# -- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://a,redis://b", ["redis://a", "redis://b"]),
        (" redis://a , , redis://b, ", ["redis://a", "redis://b"]),
        (
            "redis+sentinel://h:1,h2, [::1]:3/main/0?a=b,redis://b",
            ["redis+sentinel://h:1,h2,[::1]:3/main/0?a=b", "redis://b"],
        ),
        ("rediss+sentinel://u:p,w@h,h2/main", ["rediss+sentinel://u:p,w@h,h2/main"]),
        ("redis+sentinel://h/main,h2", ["redis+sentinel://h/main", "h2"]),
        ("redis://a,b/c", ["redis://a", "b/c"]),
        ("", []),
    ],
)
def test_lists_are_split_at_the_commas_between_nodes(text, expected):
    """Those between a service's hosts are none: they end where its name begins."""
    assert split_urls(text) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://h1,h2", "redis+sentinel://host:26379,host:26379/service/db"),
        ("redis+sentinel:///main", "names no host"),
        ("redis+sentinel://h:x/main", "not a valid node URL"),
        ("unix+sentinel://h/main", "unknown scheme"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url, words):
    """It says how it is written."""
    with pytest.raises(ConfigurationError) as caught:
        LockManager([url])
    assert words in str(caught.value)
