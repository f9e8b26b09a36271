"""The restart quarantine: a node that may have forgotten locks has no vote while one can be alive (R12)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from aioredlock_ng import ConfigurationError, LockTakenError, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng._core.quarantine import Incarnation, parse
from aioredlock_ng.events import Misconfigured
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, in_task, sim
from tests.unit.traces import PREFIX, Heard, count, counter, sent
from tests.unit.worlds import LATENCY, PLAIN, TTL, ago, each, make, opened, put, states, world

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
async def test_a_holders_lock_is_safe_from_nodes_that_forgot(mode):
    """A majority restarts empty under a lock that is held: no other client gets it while it is valid (A2)."""
    async with world(5, **mode) as w, w.process(**mode) as other:
        lease = await w.manager.lock("a", ttl=QUARANTINE, extension=PLAIN).acquire()
        each(w.nodes[:3]).restart()
        rival = await other.lock("a").acquire()
        assert sim().time() > lease.valid_until
        assert not lease.held
        await rival.release()
        await lease.release()


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
        if lease.fence is not None:
            assert w.nodes[2].get(counter("a")) == b"%d" % lease.fence
        await asyncio.sleep(3 * TTL)
        assert lease.held
        await lease.release()
        assert w.holders("a") == [None] * 3
        assert count(w.nodes[2], "release") == 1


async def test_votes_are_asked_for_with_the_incarnation():
    """Acquire, raise and extend carry it, repair and release do without: those need no vote.  An extension
    cannot outlive the quarantine (R12).
    """
    async with world(**FENCED) as w:
        put(w, "a", ago(4), ago(2), None)
        async with w.manager.lock("a", extension=PLAIN) as lease:
            w.vacate("a", 0)
            await lease.extend(QUARANTINE)
            await asyncio.sleep(3 * LATENCY)
            with pytest.raises(ValueError, match=r"ttl=61 and restart_quarantine=60"):
                await lease.extend(61)
        await asyncio.sleep(3 * LATENCY)
        seen = {one.kind: bytes(incarnation(w.nodes[0])) in one.words for one in sent(w.nodes[0])}
        assert seen == {"acquire": True, "raise": True, "extend": True, "repair": False, "release": False}


# -- other clients -------------------------------------------------------------------------------------


def said(caplog, words, level=logging.WARNING):
    """Return the warnings, or what was logged at another level, that contain some words."""
    records = [record for record in caplog.records if record.levelno == level]
    return [record.getMessage() for record in records if words in record.getMessage()]


async def test_the_longest_quarantine_holds_for_all(caplog):
    """Another client's longer one is taken over, told once for each node at INFO, and prolongs a wait that is
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


async def test_a_conflict_does_not_stick(caplog):
    """As soon as one node belongs to a larger quorum no lock is given out any more.  It is told by event, log
    and statistics, once; it ends with its cause, and is told again if it returns (A4).
    """
    hook = Heard()
    async with world(hooks=[hook]) as w:
        ours = incarnation(w.nodes[1])
        for number in (1, 2):
            w.nodes[1].set(META, bytes(replace(ours, size=5)))
            await asyncio.sleep(2 * NOTICED)
            assert states(w) == [UP, OUT, UP]
            assert "quorum of 5 nodes, this client has 3" in str(await refused(w.manager))
            reasons = [event.reason for event in hook.of(Misconfigured)]
            assert len(reasons) == number
            assert w.manager.statistics().conflict == reasons[-1]
            assert f"node {w.nodes[1].name}: it belongs to a quorum of 5" in reasons[-1]
            assert len(said(caplog, "", logging.ERROR)) == number
            w.nodes[1].set(META, bytes(ours))
            await asyncio.sleep(NOTICED)
            assert w.manager.statistics().conflict is None
            await gets(w.manager)


async def test_one_server_twice_is_told_by_an_event():
    """The same reason as in the error, once, however often it is asked for (A4)."""
    nodes, hook = [MemoryNode(latency=LATENCY) for _ in range(3)], Heard()
    nodes[1]._server.run_id = nodes[0]._server.run_id
    manager = make(nodes, hooks=[hook])
    for _ in range(2):
        with pytest.raises(ConfigurationError) as caught:
            await manager.lock("a").acquire()
        await asyncio.sleep(NOTICED)
    (told,) = hook.of(Misconfigured)
    assert told.reason == str(caught.value) == manager.statistics().conflict
    await manager.aclose()


async def test_a_node_without_a_vote_is_counted_once():
    """Whatever becomes of the reason meanwhile: here another quorum's claim, then another server's data."""
    async with world(**FENCED) as w:
        ours = incarnation(w.nodes[0])
        for other in (replace(ours, size=5), replace(ours, identity=ours.identity[::-1])):
            w.nodes[0].set(META, bytes(other))
            await asyncio.sleep(NOTICED)
            assert bool(w.manager.statistics().conflict) is (other.size == 5)
        assert states(w) == [OUT, UP, UP]
        assert w.manager.statistics().quarantined == 1


# -- plain votes, none at all, clocks ------------------------------------------------------------------


async def test_a_plain_vote_is_followed_by_a_look_at_the_incarnation():
    """The Redlock page's SET, then GET of the record, in one write; one round trip, and no fence (R12)."""
    async with world(**UNFENCED) as w:
        began = sim().time()
        lease = await w.manager.lock("a").acquire()
        assert sim().time() - began <= 2 * LATENCY + 1e-6
        await asyncio.sleep(LATENCY)
        (owner,) = set(w.holders("a"))
        taken = (b"SET", PREFIX + b"a", owner, b"NX", b"PX", b"10000")
        assert [node.executed for node in w.nodes] == [[taken, (b"GET", META)]] * 3
        assert [set(node.keys) for node in w.nodes] == [{PREFIX + b"a", META, PREFIX + b"{members}"}] * 3
        await lease.release()


@pytest.mark.parametrize("names", ["a", "ab"])
@MODES
async def test_a_node_that_forgot_the_scripts_votes_at_once(mode, names):
    """After SCRIPT FLUSH the source goes along, with the record: the very next try is won (R12)."""
    async with world(**mode) as w:
        for _ in range(2):
            async with w.manager.lock(*names, blocking_timeout=0) as lease:
                assert [vote.reason for vote in lease.votes[:2]] == [""] * 2
            each(w.nodes).flush_scripts()


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


async def test_a_wait_that_a_clock_put_far_ahead_is_shortened():
    """The node's clock went back after the record was written: it waits one quarantine from now (R12)."""
    async with world(**FENCED) as w:
        w.nodes[0].step_clock(3600)
        w.nodes[0].restart()
        await asyncio.sleep(10)
        w.nodes[0].step_clock(-3600)
        await asyncio.sleep(NOTICED)
        assert w.manager.statistics().nodes[0].votes_in == pytest.approx(WAIT, abs=NOTICED)
        await asyncio.sleep(WAIT + 1)  # it has said of the server before it that it was in use just now
        assert states(w) == [UP] * 3


# -- beginnings ----------------------------------------------------------------------------------------


def fresh():
    """Return nodes that may have forgotten anything."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    each(nodes).flush()
    return nodes


async def test_a_fresh_prefix_waits_once():
    """Its first lock comes after one quarantine; then there is no more wait.  A client that only looks leaves
    fresh nodes as they are; what starts it for locks after that claims them (R12).
    """
    nodes = fresh()
    manager = make(nodes, **FENCED)
    await manager.inspect("a")
    assert [node.keys for node in nodes] == [()] * 3
    assert "restart quarantine" in str(await refused(manager))
    assert [incarnation(node).size for node in nodes] == [3] * 3
    async with manager, manager.lock("a"):
        assert sim().time() - 1000 == pytest.approx(WAIT, abs=NOTICED)
    async with opened(nodes, **FENCED, seed=2) as manager:
        await gets(manager)
        await gets(manager, "b")


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


async def test_init_waits_for_nodes_that_answer_late():
    """It states something of all nodes: none is left out for being slower than a majority (R12).  Where
    nothing rests on incarnation records there is nothing to state.
    """
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    async with opened(nodes, **FENCED):
        pass  # they are known: a majority is up at once
    nodes[2].freeze()
    sim().call_later(0.5, nodes[2].thaw)
    manager = make(nodes, **FENCED)
    assert [node.done for node in await manager.init()] == [True] * 3
    await manager.aclose()
    async with world(fencing=False, restart_quarantine=0) as w:
        with pytest.raises(ConfigurationError, match="nothing to initialise"):
            await w.manager.init()


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
