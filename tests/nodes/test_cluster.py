"""Redis Cluster: one slot as one node, by client and by URL, through failovers and moves of the slot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from aioredlock_ng import (
    ConfigurationError,
    LockManager,
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
)
from aioredlock_ng._core.keyspace import hash_tag, tagged
from aioredlock_ng._node import NodeState
from aioredlock_ng.testing import LocalNodes
from tests.clusters import OPTIONS, Cluster
from tests.nodes.tools import becomes, denied_because, listening, run_id, running, server_of
from tests.servers import ask, eventually, fastest_arm, lock_keys

PATIENT = 1.0
MakeClient = Callable[..., "RedisCluster[Any]"]


@pytest.fixture(scope="module")
def six():
    """Give three masters with a replica each; every test leaves them well, under prefixes of its own."""
    nodes = LocalNodes(6, server=fastest_arm(), options=OPTIONS)
    with contextlib.closing(nodes):
        nodes.start()
        cluster = Cluster(nodes, 3)
        cluster.form()
        yield cluster


@pytest.fixture
async def client(six):
    """Give a function that makes clients of that Cluster, closed at the end by us."""
    async with contextlib.AsyncExitStack() as stack:

        def make(**options):
            made = RedisCluster(host="127.0.0.1", port=six.nodes.ports[1], **options)
            stack.push_async_callback(made.aclose)
            return made

        yield make


# -- prefixes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "tag", "better"),
    [
        (b"redlock:", None, "{redlock}:"),
        (b"app:locks:", None, "{app:locks}:"),
        (b"", None, "{locks}:"),
        (b"{}x:", None, "{x}:"),
        (b"a{b", None, "{ab}:"),
        (b"{locks}:", b"locks", None),
        (b"app:{a}{b}", b"a", None),
        (b"{{x}:", b"{x", None),
    ],
)
def test_the_hash_tag_is_that_of_the_server(six, prefix, tag, better):
    """All keys behind a prefix with a tag have its slot; a prefix without one is shown one that has."""
    assert hash_tag(prefix) == tag
    keys = [prefix + rest for rest in (b"a", b"fence:{" + prefix + b"a}", b"{meta}", b"b}{c}")]
    slots = {ask(six.urls[0], "CLUSTER KEYSLOT", key) for key in keys}  # type: ignore[arg-type]
    assert (len(slots) == 1) is (tag is not None)
    if better is not None:
        assert tagged(prefix) == better
        assert hash_tag(better.encode()) is not None


@pytest.mark.full
def test_a_cluster_client_needs_a_hash_tag():
    """The error shows the prefix to write."""
    cluster = RedisCluster(host="127.0.0.1", port=1)
    with pytest.raises(ConfigurationError, match=r"prefix='\{redlock\}:' in all clients instead"):
        LockManager([cluster])
    assert "client:cluster:127.0.0.1:1" in repr(LockManager([cluster], prefix="{redlock}:"))
    with pytest.raises(ConfigurationError, match="given twice"):
        LockManager([cluster, RedisCluster(host="127.0.0.1", port=1)], prefix="{x}")


# -- a client ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 2}, {"protocol": 3}])
async def test_a_cluster_is_one_node(six, client, options):
    """All that locks do, on the master that has the slot; what administrators do, too."""
    prefix = f"{{one{len(str(options))}}}:"
    master = six.urls[six.master_of(prefix)]
    made = client(**options)
    async with LockManager([made], prefix=prefix, node_timeout=PATIENT) as manager:
        async with manager.lock("a", "b") as lease:
            await lease.extend()
            assert lease.fence is not None
            assert len(lock_keys(master, prefix)) == 2
            assert [entry.ours for entry in await manager.inspect("a")] == [True]
            assert [lock.name for lock in (await manager.survey()).locks] == ["a", "b"]
            assert await manager.lock("b", blocking=False).try_acquire() is None
            with pytest.raises(LockTakenError, match="is alive"):
                await manager.init()
        await eventually(lambda: not lock_keys(master, prefix))
        assert all(node.done for node in await manager.init())
        findings = [one for one in await manager.diagnose() if one.level == "error"]
        assert findings == []
        assert server_of(manager) == run_id(master)
    assert not made.nodes_manager.nodes_cache, "the client itself was never used"
    async with (
        LockManager([client(**options)], prefix=prefix, fencing=False, node_timeout=PATIENT) as plain,
        plain.lock("a") as lease,
    ):
        await lease.extend()
        await plain.force_release("a")
        assert not lock_keys(master, prefix)


async def over(
    client: MakeClient, prefix: str, stack: contextlib.AsyncExitStack, **options: Any
) -> LockManager:
    """Enter a manager with a quarantine on a fresh prefix, which may be used at once."""
    settings = {"ttl": 2.0, "restart_quarantine": 3.0, "node_timeout": PATIENT} | options
    manager = await stack.enter_async_context(LockManager([client()], prefix=prefix, **settings))
    await manager.init(force=True)
    await becomes(manager, NodeState.UP)
    return manager


@pytest.mark.process
@pytest.mark.parametrize("fencing", [True, False])
async def test_a_moved_slot_is_noticed_and_its_locks_go_along(six, client, fencing):
    """Another server has them now: it is not believed before the quarantine is over."""
    prefix = f"{{move{fencing}}}:"
    source = six.master_of(prefix)
    target = six.another(source)
    async with contextlib.AsyncExitStack() as stack:
        manager = await over(client, prefix, stack, fencing=fencing)
        lease = await manager.lock("held", ttl=3.0).acquire()
        six.move(prefix, target)
        assert lock_keys(six.urls[target], prefix) == [f"{prefix}held".encode()]
        with pytest.raises((QuorumUnavailableError, LockTakenError)):
            await manager.lock("other", blocking=False).acquire()
        await becomes(manager, NodeState.QUARANTINED)
        await lease.release()
        await eventually(lambda: not lock_keys(six.urls[target], prefix), what="a plain SET is undone")
        await becomes(manager, NodeState.UP)
        assert server_of(manager) == run_id(six.urls[target])
        async with manager.lock("other", blocking_timeout=20) as later:
            assert later.held
    six.settle()


@pytest.mark.process
@pytest.mark.parametrize("how", ["asked for", "killed", "frozen"])
async def test_a_failover_is_noticed(six, client, how):
    """The promoted replica has no vote for a quarantine; the client finds it by itself."""
    prefix = f"{{failover {how}}}:"
    old = six.master_of(prefix)
    slot = int(ask(six.urls[old], "CLUSTER KEYSLOT", prefix))
    (replica,) = ask(six.urls[old], "CLUSTER", "REPLICAS", six.ids[old])
    new = six.ids.index(replica.split()[0].decode())
    async with contextlib.AsyncExitStack() as stack:
        manager = await over(client, prefix, stack)
        lease = await manager.lock("held").acquire()
        if how == "asked for":
            ask(six.urls[new], "CLUSTER FAILOVER")
        elif how == "killed":
            six.nodes.kill(old)
        else:
            six.nodes.pause(old)
        await eventually(lambda: six.serves(new, slot), within=30, what="it is promoted")
        with contextlib.suppress(QuorumUnavailableError, LockTakenError):
            granted = await manager.lock("held", blocking=False).try_acquire()
            assert granted is None, "it is held, or the new master has no vote yet"
        await eventually(lambda: server_of(manager) == run_id(six.urls[new]), within=30)
        await becomes(manager, NodeState.UP)
        await lease.release()
        async with manager.lock("held", blocking_timeout=20) as later:
            assert later.fence > lease.fence
    if how == "killed":
        await six.nodes.restart(old)
    six.nodes.resume(old)
    await asyncio.to_thread(six.settle)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"*0\r\n", "no server has the slot"),
        (b"*1\r\n*3\r\n:0\r\n:16383\r\n$2\r\nab\r\n", "its reply to CLUSTER SLOTS is malformed"),
        (b":1\r\n", "its reply to CLUSTER SLOTS is malformed"),
        (b"-ERR not today\r\n", "not today"),
        (b"-ERR s3cret-pass\r\n", "ResponseError"),
        (b"", "no answer in time"),
    ],
)
async def test_why_no_server_of_the_slot_is_found(answer, reason):
    """Each server that was asked is named, with its own reason, and without a password."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(answer if b"SLOTS" in data else b"+OK\r\n" * data.count(b"*"))

    async with listening(serve) as url:
        made = RedisCluster(host="127.0.0.1", port=int(url.rpartition(":")[2]), password="s3cret-pass")
        async with LockManager([made], prefix="{a}:", connect_timeout=0.3) as manager:
            with contextlib.suppress(QuorumUnavailableError):
                await manager.start()
            node = manager.statistics().nodes[0]
            assert node.state is NodeState.DOWN
            assert f"{url[8:]}: " in node.reason
            assert reason in node.reason
            assert "s3cret" not in node.reason
        await made.aclose()


# -- URLs ----------------------------------------------------------------------------------------


@pytest.fixture
def alone(make_nodes):
    """Give a cluster-enabled server that has all the slots."""
    nodes = make_nodes(1, options=OPTIONS)
    Cluster(nodes, 1).form()
    return nodes


@pytest.mark.heavy
@pytest.mark.full
async def test_a_server_with_all_slots_is_a_node_by_url(alone):
    """With notices; the doctor only warns of what a failover may forget."""
    prefix = "{locks}:"
    async with LockManager(alone.urls, prefix=prefix, node_timeout=PATIENT) as manager:
        async with manager.lock("a", "b") as lease:
            await lease.extend()
            assert manager._life.nodes[0].can_hear
            assert [lock.name for lock in (await manager.survey()).locks] == ["a", "b"]
        await eventually(lambda: not lock_keys(alone.urls[0], prefix))
        (mode,) = [one for one in await manager.diagnose() if one.check == "mode"]
        assert (mode.level, "restart_quarantine" in mode.advice) == ("warning", True)
    async with LockManager(alone.urls, prefix="{q}:", restart_quarantine=20) as manager:
        (mode,) = [one for one in await manager.diagnose() if one.check == "mode"]
        assert mode.level == "ok"


async def test_by_url_too_a_hash_tag_is_needed(alone, make_nodes):
    """The error shows it; where the other nodes are enough, it costs that node's vote and no more."""
    with pytest.raises(ConfigurationError, match=r"prefix='\{redlock\}:' in all clients instead"):
        async with LockManager(alone.urls) as manager:
            await manager.lock("a").acquire()
    manager = LockManager(alone.urls)
    (mode,) = [one for one in await manager.diagnose() if one.check == "mode"]
    assert mode.level == "error"
    await manager.aclose()
    others = make_nodes(2).urls
    async with (
        LockManager([*alone.urls, *others], prefix="mixed:", node_timeout=PATIENT) as manager,
        manager.lock("a"),
    ):
        node = manager.statistics().nodes[0]
        assert node.state is NodeState.DOWN
        assert "prefix='{mixed}:'" in node.reason
    async with LockManager(alone.urls, fencing=False, node_timeout=PATIENT) as plain, plain.lock("a"):
        pass  # one key is in one slot


async def test_a_server_without_slots_has_no_vote(make_nodes):
    """The vote says why, with fences and without; a plain key of another slot might be well."""
    (url,) = make_nodes(1, options=OPTIONS).urls
    async with LockManager([url], prefix="{x}:", node_timeout=PATIENT) as fenced:
        assert "CLUSTERDOWN" in await denied_because(fenced)
    async with running([url], fencing=False, node_timeout=PATIENT) as plain:
        assert (await denied_because(plain)).startswith("CLUSTERDOWN")


async def test_the_masters_of_one_cluster_are_no_n_nodes(six):
    """One of them has the slot, and the others say where: the error says what to give instead."""
    prefix = "{masters}:"
    here = six.master_of(prefix)
    urls = {i: six.urls[i] for i in six.primaries()}
    with pytest.raises(ConfigurationError) as caught:
        async with LockManager(urls.values(), prefix=prefix, node_timeout=PATIENT) as manager:
            await manager.lock("a").acquire()
    assert "RedisCluster" in str(caught.value)
    assert "not independent" in str(caught.value)
    assert all((url in str(caught.value)) is (i != here) for i, url in urls.items())
    prefix += "one:"  # the same tag
    async with LockManager([urls[here]], prefix=prefix, node_timeout=PATIENT) as manager:
        async with manager.lock("a"):
            pass
        six.move(prefix, six.another(here))
        with pytest.raises((ConfigurationError, QuorumUnavailableError), match="MOVED"):
            await manager.lock("a", blocking=False).acquire()
        await eventually(lambda: "RedisCluster" in manager.statistics().nodes[0].reason)
        six.move(prefix, here)
        await becomes(manager, NodeState.UP)
        async with manager.lock("a"):
            pass
    six.settle()


@pytest.mark.heavy
@pytest.mark.full
async def test_names_in_different_slots_are_asked_for_one_by_one(alone):
    """Two keys without a common hash tag cannot be in one script there; each lock alone is one key (R42)."""
    async with LockManager(alone.urls, fencing=False, restart_quarantine=0, node_timeout=2.0) as manager:
        leases = await asyncio.gather(*(manager.lock(f"n{i}").acquire() for i in range(20)))
        await asyncio.gather(*(lease.extend(60) for lease in leases))
        await asyncio.gather(*(lease.release() for lease in leases))
        assert lock_keys(alone.urls[0]) == []
        assert manager.statistics().nodes[0].pending_releases == 0
        with pytest.raises(LockNotAcquiredError, match="CROSSSLOT"):
            await manager.lock("a", "b", blocking_timeout=0).acquire()
