"""Clients with other lists: which quorum a node belongs to, and how the older one gets it back (R12a)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from random import Random

import pytest

from aioredlock_ng import ConfigurationError, LockTakenError, NodeState, QuorumUnavailableError
from aioredlock_ng.events import Misconfigured
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import in_task, sim
from tests.unit.test_quarantine import FENCED as WAITING
from tests.unit.test_quarantine import META, NOTICED, gets, incarnation
from tests.unit.traces import Heard
from tests.unit.worlds import LATENCY, PLAIN, each, make, opened, states, world

QUARANTINE = 60.0


def claims(caplog, node):
    """Return how often clients say that they have taken a node back."""
    return sum(f"node {node.name} was in use" in line and "; reclaimed: " in line for line in caplog.messages)


def fresh(number):
    """Return nodes that were emptied."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(number)]
    each(nodes).flush()
    return nodes


@contextlib.asynccontextmanager
async def strays(nodes, **options):
    """Open the manager of a client with another list, which may be refused."""
    manager = make(nodes, seed=99, holder="stray", **options)
    try:
        with contextlib.suppress(ConfigurationError):
            await manager.start()
        yield manager
    finally:
        await manager.aclose()


async def refused(manager, name="a"):
    """Return what keeps a client from a lock."""
    end = await in_task(manager.lock(name, blocking_timeout=0).acquire)
    assert isinstance(end.error, (ConfigurationError, QuorumUnavailableError)), end
    return f"{type(end.error).__name__}: {end.error}"


# -- look first, write after ---------------------------------------------------------------------------


async def test_a_client_that_is_refused_has_written_nothing():
    """Its list names two nodes of the quorum and one that was emptied: that one stays empty."""
    async with world(5, holder="us", **WAITING) as w:
        await w.manager.aclose()
        w.nodes[0].flush()
        before = [node.get(META) for node in w.nodes]
        async with strays(w.nodes[:3]) as stray:
            for _ in range(3):
                error = await refused(stray)
                assert "quorum of 5 nodes, this client has 3; first used by us at 2023-11-14" in error
                await asyncio.sleep(NOTICED)
        assert [node.get(META) for node in w.nodes] == before
        assert before[0] is None


# -- the older quorum takes a node back ----------------------------------------------------------------


async def test_a_stray_first_use_is_taken_back(caplog):
    """A client of one of the five nodes uses it after it was emptied, and locks at once.  The quorum has its
    node back within a heartbeat, and goes on with the others; the node waits for its own quarantine, not for
    theirs; the stray client is refused (R12a).
    """
    hook = Heard()
    async with world(5, holder="us", hooks=[hook], **WAITING) as w:
        ours = await w.manager.lock("ours", extension=PLAIN, ttl=10).acquire()
        w.nodes[0].flush()
        async with strays(w.nodes[:1]) as stray:
            theirs = await stray.lock("a", ttl=200, extension=PLAIN).acquire()
            await asyncio.sleep(NOTICED)
            assert incarnation(w.nodes[0]).size == 5
            assert incarnation(w.nodes[0]).claim == incarnation(w.nodes[1]).claim
            assert states(w) == [NodeState.QUARANTINED] + [NodeState.UP] * 4
            await ours.extend()
            await gets(w.manager, "b")
            assert "quorum of 5 nodes, this client has 1; first used by us" in await refused(stray)
            with pytest.raises(QuorumUnavailableError):
                await theirs.extend()
        await asyncio.sleep(QUARANTINE + 2)
        assert states(w) == [NodeState.UP] * 5
        assert claims(caplog, w.nodes[0]) == 1
        (told,) = hook.of(Misconfigured)
        name, reason = w.nodes[0].name, told.reason
        assert reason.startswith(
            f"node {name} was in use by clients with another number of nodes; reclaimed: it belongs to"
        )
        assert "a quorum of 1 node, this client has 5; first used by stray at 2023-11-14" in reason
        assert w.manager.statistics().conflict is None


async def test_a_refused_client_is_not_inside_when_the_node_is_emptied():
    """The stray client has a majority without it: it lets the older quorum's clients claim it again first."""
    async with world(5, holder="us", **WAITING) as w:
        others = [MemoryNode(latency=LATENCY) for _ in range(2)]
        await asyncio.sleep(0.25)  # half a heartbeat
        async with strays([*others, w.nodes[0]], **WAITING) as stray:
            for node in others:
                identity = "".join(node.identity).encode()
                younger = replace(
                    incarnation(w.nodes[0]).claim, born_ms=round(sim().time() * 1000) + 2 * 10**12
                )
                its = replace(incarnation(w.nodes[0]), size=3, identity=identity, claim=younger)
                node.set(META, bytes(its))
            await asyncio.sleep(NOTICED)
            ours = await w.manager.lock("a").acquire()
            for phase in range(20):  # of either client's heartbeat
                await asyncio.sleep(0.03 * phase)
                w.nodes[0].flush()
                for _ in range(30):
                    assert "ConfigurationError" in await refused(stray, "a"), sim().time()
                    await asyncio.sleep(0.02)
                assert incarnation(w.nodes[0]).size == 5
            await ours.release()


# -- an operator's statement ---------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 3])
async def test_init_refuses_where_a_node_is_another_quorums(nodes: int) -> None:
    """It says whose, and changes nothing; `force` overrules that."""
    async with world(5, holder="us") as w:
        before = [node.get(META) for node in w.nodes]
        async with strays(w.nodes[:nodes]) as stray:
            with pytest.raises(ConfigurationError, match="nothing was changed") as caught:
                await stray.init()
            words = f"it belongs to a quorum of 5 nodes, this client has {nodes}; first used by us at"
            assert words in str(caught.value)
            assert [node.get(META) for node in w.nodes] == before
            assert len(await stray.init(force=True)) == nodes


async def test_init_wants_enough_nodes_that_remember():
    """A lock that is alive on the three of five nodes that were emptied cannot be seen on the other two."""
    async with world(5, **WAITING) as w:
        lease = await w.manager.lock("a", ttl=QUARANTINE, extension=PLAIN).acquire()
        w.vacate("a", 0, 1)  # it was granted by the others only
        each(w.nodes[2:]).flush()
        await asyncio.sleep(NOTICED)
        assert states(w) == [NodeState.UP] * 2 + [NodeState.QUARANTINED] * 3
        async with w.process(**WAITING) as other:
            with pytest.raises(
                QuorumUnavailableError, match="only 2 of the nodes can be reached and still have"
            ):
                await other.init()
            assert lease.held
            assert isinstance(
                (await in_task(other.lock("a", blocking_timeout=1).acquire)).error,
                (QuorumUnavailableError, LockTakenError),
            ), "there would be two holders"
        await lease.release()


# -- one floor for all ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3, 5])
async def test_the_first_lock_without_a_quarantine_comes_at_once(number):
    """Fresh nodes agree on a fence in the same round trip, since they have one floor (R11)."""
    random, nodes = Random(number), fresh(number)
    for node in nodes:
        node.latency = lambda: random.uniform(0.0001, 0.005)
    async with opened(nodes, restart_quarantine=0) as manager:
        assert sim().time() - 1000 < 0.1
        assert len({incarnation(node).floor for node in nodes}) == 1
        fences = [(await gets(manager)).fence for _ in range(3)]
        assert manager.statistics().certified == 3
        each(nodes).flush()
        await asyncio.sleep(1)
        fences.append((await gets(manager)).fence)
        assert fences == sorted(set(fences))
