"""The restart quarantine: a node that may have forgotten locks has no vote while one can be alive (R12)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioredlock_ng import ConfigurationError, LockTakenError, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng._core.quarantine import Incarnation, parse
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, in_task, sim
from tests.unit.traces import count, counter
from tests.unit.worlds import LATENCY, TTL, each, make, opened, states, world

QUARANTINE = 60.0
WAIT = 60.61
"""Seconds that it takes by the node's clock: one percent and 10 ms more."""
NOTICED = 0.6
"""Seconds in which a heartbeat finds out."""
RECONNECTED = 0.7
"""Seconds in which a connection that was lost is there again."""

META = b"redlock:{meta}"
FENCED = {"restart_quarantine": QUARANTINE}
UNFENCED = {"fencing": False, "restart_quarantine": QUARANTINE}
MODES = pytest.mark.parametrize("mode", [FENCED, UNFENCED], ids=["fenced", "plain"])
UP, OUT = NodeState.UP, NodeState.QUARANTINED


def incarnation(node) -> Incarnation:
    """Return what a node's incarnation record says."""
    return parse(node.get(META) or b"")


async def refused(manager, name="a"):
    """Return the error of one try."""
    return (await in_task(manager.lock(name, blocking_timeout=0).acquire)).error


async def gets(manager, name="a"):
    """See that one try gets the lock; return its lease."""
    async with manager.lock(name, blocking_timeout=0) as lease:
        return lease


# -- how memory is lost --------------------------------------------------------------------------------


def _empty(node):
    """Restart without data."""
    node.restart()


def _old(node):
    """Restart with the data of a moment ago: as from an append-only file that was written."""
    node.restart(from_=node.snapshot())


def _kept(node):
    """Restart with all data, which cannot be known for sure."""
    node.crash(keep_data=True)
    node.restart()


def _flushed(node):
    """Lose all data on live connections."""
    node.flush()


LOSSES = pytest.mark.parametrize("loss", [_empty, _old, _kept, _flushed])


@MODES
@LOSSES
async def test_a_node_that_may_have_forgotten_has_no_vote(loss, mode):
    """From the loss until one quarantine has passed by its own clock it is SILENT, and it says why (R12)."""
    async with world(**mode) as w:
        assert states(w) == [UP] * 3
        loss(w.nodes[2])
        await asyncio.sleep(RECONNECTED)
        asked = count(w.nodes[2], "acquire")
        w.nodes[0].freeze()
        error = await refused(w.manager)
        assert isinstance(error, QuorumUnavailableError)
        assert error.votes[2].vote is Vote.SILENT
        assert error.votes[2].reason.startswith("restart quarantine: no vote for another")
        assert count(w.nodes[2], "acquire") == asked, "what has no vote is not asked for it"
        node = w.manager.statistics().nodes[2]
        assert (node.state, w.manager.statistics().quarantined) == (OUT, 1)
        assert node.votes_in == pytest.approx(WAIT - RECONNECTED, abs=RECONNECTED)
        await asyncio.sleep(WAIT - RECONNECTED - 1)
        assert isinstance(await refused(w.manager), QuorumUnavailableError)
        w.nodes[0].thaw()
        await asyncio.sleep(1 + RECONNECTED)
        assert states(w) == [UP] * 3
        assert w.manager.statistics().nodes[2].votes_in is None
        w.nodes[0].freeze()
        await gets(w.manager)
        w.nodes[0].thaw()


@MODES
async def test_a_flush_is_noticed_by_the_next_acquire(mode):
    """`FLUSHALL` between two heartbeats, on live connections: the vote of such a node does not count, and
    what it took is undone (R12).
    """
    async with world(**mode) as w, w.process(**mode) as other, w.manager.lock("a") as lease:
        await asyncio.sleep(NOTICED)
        each(w.nodes[:2]).flush()
        error = await refused(other)
        assert isinstance(error, QuorumUnavailableError)
        for vote in error.votes[:2]:
            assert vote.vote is Vote.SILENT
            assert "may have lost its data" in vote.reason
        assert error.votes[2].vote in (Vote.REFUSED, Vote.SILENT)
        assert [count(node, "acquire") for node in w.nodes] == [2] * 3, "they were asked"
        await asyncio.sleep(2 * LATENCY)
        assert w.holders("a")[:2] == [None, None]
        assert lease.held


# -- what goes on meanwhile ----------------------------------------------------------------------------


@MODES
async def test_an_extension_goes_on_with_the_others_and_gives_the_key_back(mode):
    """A held lock outlives a node's restart; its next won extension tops up the quarantined node, counter and
    all, and the release reaches it (R9, R12).
    """
    async with world(**mode) as w:
        lease = await w.manager.lock("a").acquire()
        (owner,) = set(w.holders("a"))
        w.nodes[2].restart()
        await asyncio.sleep(RECONNECTED)
        assert states(w) == [UP, UP, OUT]
        assert w.holders("a") == [owner, owner, None]
        await lease.extend()
        assert [vote.vote for vote in lease.votes][:2] == [Vote.GRANTED] * 2
        await asyncio.sleep(3 * LATENCY)
        assert lease.votes[2].vote is Vote.SILENT, "it has the key, and no vote"
        assert w.holders("a") == [owner] * 3
        assert w.manager.statistics().topped_up == 1
        if fence := lease._holding.fence:
            assert w.nodes[2].get(counter("a")) == b"%d" % fence
        await asyncio.sleep(3 * TTL)
        assert lease.held
        await lease.release()
        assert w.holders("a") == [None] * 3
        assert count(w.nodes[2], "release") == 1


# -- other clients -------------------------------------------------------------------------------------


def said(caplog, words, level=logging.WARNING):
    """Return the warnings, or what was logged at another level, that contain some words."""
    records = [record for record in caplog.records if record.levelno == level]
    return [record.getMessage() for record in records if words in record.getMessage()]


async def test_the_longest_quarantine_holds_for_all(caplog):
    """Another client's longer one is taken over, logged once for each node, and prolongs a wait that is
    under way; a shorter one changes nothing (R12).
    """
    caplog.set_level(logging.INFO)
    words = "its restart quarantine is 120 s, longer than this client's"
    async with world(**FENCED) as w:
        async with w.process(restart_quarantine=30.0):
            await asyncio.sleep(NOTICED)
        assert {incarnation(node).quarantine_ms for node in w.nodes} == {60_000}
        w.nodes[0].restart()
        await asyncio.sleep(30)
        before = w.manager.statistics().nodes[0].votes_in
        assert not said(caplog, words, logging.INFO)
        async with w.process(restart_quarantine=120.0):
            await asyncio.sleep(2 * NOTICED)
        after = w.manager.statistics().nodes[0].votes_in
        assert after == pytest.approx(before + 60.6 - 2 * NOTICED, abs=0.01)
        assert {incarnation(node).quarantine_ms for node in w.nodes} == {120_000}
        told = said(caplog, words, logging.INFO)
        assert len(told) == 3
        assert all(sum(node.name in line for line in told) == 1 for node in w.nodes)
        w.nodes[0].restart()
        await asyncio.sleep(RECONNECTED)
        assert w.manager.statistics().nodes[0].votes_in == pytest.approx(121.21, abs=RECONNECTED)
        assert said(caplog, words, logging.INFO) == told
        assert not said(caplog, "longer than this client's")


async def test_clients_with_another_number_of_nodes_have_no_business_here():
    """A quorum of two or of four of these nodes would not meet ours: ConfigurationError, at the start and at
    every lock, and the incarnation records stay (A4, R12).
    """
    async with world() as w:
        before = [node.get(META) for node in w.nodes]
        for nodes in (w.nodes[:2], [*w.nodes, MemoryNode(latency=LATENCY)]):
            stranger = make(nodes)
            with pytest.raises(ConfigurationError) as caught:
                await stranger.start()
            for words in (
                f"quorum of 3 nodes, this client has {len(nodes)}; ",
                w.nodes[0].name,
                "compare their lists",
            ):
                assert words in str(caught.value)
            assert "init" not in str(caught.value), "that would stop the quorum that is there"
            for _ in range(2):
                assert "quorum of 3" in str(await refused(stranger))
                await asyncio.sleep(NOTICED)
            assert OUT in {node.state for node in stranger.statistics().nodes}
            await stranger.aclose()
        assert [node.get(META) for node in w.nodes] == before
        assert all(count(node, "acquire") == 0 for node in w.nodes)
        await gets(w.manager)


# -- plain votes, none at all, clocks ------------------------------------------------------------------


@LOSSES
async def test_a_quarantine_of_zero_leaves_the_floor(loss):
    """No wait, but fences still grow: no fence may be below the floor of a node that forgot (R12)."""

    class Listener:
        def on_node_changed(self, event):
            assert not event.reason.startswith("restart quarantine")

    async with world(restart_quarantine=0, hooks=[Listener()]) as w:
        first = (await gets(w.manager)).fence
        for node in w.nodes:
            loss(node)
        await asyncio.sleep(RECONNECTED)
        assert states(w) == [UP] * 3
        floors = [incarnation(node).floor for node in w.nodes]
        async with w.manager.lock("a") as lease:
            assert first < max(floors) < lease.fence


# -- beginnings ----------------------------------------------------------------------------------------


def fresh():
    """Return nodes that may have forgotten anything."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    each(nodes).flush()
    return nodes


@MODES
async def test_init_ends_the_wait(mode):
    """The client that states that no lock can be alive has the votes at once; others by their next heartbeat
    (R12).
    """
    nodes = fresh()
    async with opened(nodes, **mode) as manager, opened(nodes, seed=2, **mode) as other:
        began = sim().time()
        assert [node.done for node in await manager.init()] == [True] * 3
        await gets(manager)
        assert sim().time() - began < 0.1
        await asyncio.sleep(NOTICED)
        await gets(other)
        assert {incarnation(node).ready_ms for node in nodes} == {0}
        statistics = manager.statistics()
        assert statistics.certified == statistics.acquired * mode.get("fencing", True)


async def test_init_does_not_let_a_living_lock_be_forgotten():
    """It refuses while a lock is alive, names it and changes nothing; `force` overrules that (R12)."""
    nodes = fresh()
    async with opened(nodes, **FENCED) as manager:
        await manager.init()
        async with manager.lock("job"):
            nodes[0].restart()
            await asyncio.sleep(RECONNECTED)
            before = [node.get(META) for node in nodes]
            with pytest.raises(LockTakenError, match="'job' is alive") as caught:
                await manager.init()
            assert caught.value.names == ("job",)
            assert [node.get(META) for node in nodes] == before
            assert manager.statistics().nodes[0].state is OUT
            assert [node.done for node in await manager.init(force=True)] == [True] * 3
            assert manager.statistics().nodes[0].state is UP


@pytest.mark.parametrize(
    ("late", "waits", "floors"), [(0.0, 0.0, 1), (0.3, 0.3, 1), (4.9, 4.9, 1), (20.0, 5.0, 2)]
)
async def test_init_waits_until_the_slowest_clock_can_follow(late, waits, floors):
    """All nodes get one floor, so that fences agree at once; a clock that is too late has its own (R12)."""
    nodes = fresh()
    nodes[1].step_clock(-late)
    async with opened(nodes, **FENCED) as manager:
        await manager.start()
        began = sim().time()
        assert [node.done for node in await manager.init()] == [True] * 3
        assert sim().time() - began == pytest.approx(waits, abs=0.1)
        assert len({incarnation(node).floor for node in nodes}) == floors
        assert [node.state for node in manager.statistics().nodes] == [UP] * 3


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("reached", [0, 1])
async def test_init_needs_a_majority_to_say_that_no_lock_is_alive(reached, used):
    """Nodes that cannot be reached may have one: nothing is changed, and the error says who was silent."""
    nodes = fresh()
    if used:
        async with make(nodes, **FENCED) as manager:
            await manager.init()
    for node in nodes[reached:]:
        node.crash()
    async with make(nodes, **FENCED) as manager:
        with pytest.raises(QuorumUnavailableError, match=f"{reached} of 3 nodes can be reached") as caught:
            await manager.init()
        votes = caught.value.votes
        assert [vote.vote is Vote.SILENT for vote in votes] == [i >= reached for i in range(3)]
        assert all(vote.reason for vote in votes[reached:])
        assert [node.done for node in await manager.init(force=True)] == [i < reached for i in range(3)]


def newer(node, ready_ms=0, size=3):
    """Return the record that a version to come might write: whatever follows, the first fields stay."""
    return b"2:%b:0:%d:%d:60000:more" % ("".join(node.identity).encode(), ready_ms, size)


async def test_an_incarnation_of_a_newer_version_counts_as_present(caplog):
    """It is expected and compared as any other, reported once for each node, and never rewritten (R12)."""
    nodes = fresh()
    for node in nodes:
        node.set(META, newer(node))
    async with opened(nodes, **FENCED) as manager:
        for _ in range(3):
            assert (await gets(manager)).fence
            await asyncio.sleep(2 * NOTICED)
        assert [node.get(META) for node in nodes] == [newer(node) for node in nodes]
        assert len(said(caplog, "written by another version")) == 3
        for node in nodes[:2]:
            node.set(META, newer(node) + b":changed")
        assert isinstance(await refused(manager), QuorumUnavailableError)


async def test_what_a_newer_version_says_holds():
    """Its quarantine, its number of nodes; and what cannot be read at all is nothing to vote by (R12)."""
    nodes = fresh()
    values = (newer(nodes[0], ready_ms=2**52), b"2:somebody:else:knows", b"junk")
    for node, value in zip(nodes, values, strict=True):
        node.set(META, value)
    async with opened(nodes, **FENCED) as manager:
        first, *others = [node.reason for node in manager.statistics().nodes]
        assert "no vote for another" in first
        unknown = (
            "its incarnation record is unreadable: another version or program wrote it; it is left as it is"
        )
        assert others == [unknown] * 2
        assert isinstance(await refused(manager), QuorumUnavailableError)
    for node in nodes:
        node.set(META, newer(node, size=5))
    with pytest.raises(ConfigurationError, match="quorum of 5 nodes"):
        await cycle(opened(nodes, seed=2, **FENCED))
