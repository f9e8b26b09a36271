"""How nodes and leases stand, and what is said of them."""

from __future__ import annotations

import asyncio
import logging
import math

import pytest

from aioredlock_ng import NodeState
from aioredlock_ng.events import NodeChanged
from aioredlock_ng.testing import MemoryNode, memory_node
from tests.unit.worlds import LATENCY, PLAIN, PREFIX, make, opened, virtual, world


class Hook:
    """A hook that keeps what it hears of nodes."""

    def __init__(self) -> None:
        self.changes: list[NodeChanged] = []

    def on_node_changed(self, event: NodeChanged) -> None:
        """Keep it."""
        self.changes.append(event)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of WARNING and above."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# -- nodes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.45, 0.55, 0.65, 0.75, 1.45])
@virtual
async def test_a_far_node_that_was_just_asked_is_not_suspect(after, caplog) -> None:
    """Something asked shortly before the first look at a connection, and not answered yet, says nothing."""
    hook = Hook()
    async with world(latency=0.15, node_timeout=0.8, hooks=[hook]) as w:
        await asyncio.sleep(after)
        lease = await w.manager.lock("a", blocking_timeout=0).acquire()
        await asyncio.sleep(2)
        await lease.release()
        assert [change.state for change in hook.changes] == [NodeState.UP] * 3
    assert not warned(caplog)


@virtual
async def test_a_new_reason_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A node that is down for another reason than before is logged and told again, each reason once."""
    hook = Hook()
    node = MemoryNode("m")
    node.crash()
    async with opened([node], connect_timeout=0.2, hooks=[hook]):
        await asyncio.sleep(5)
        refused = "m refused the connection"
        assert [(change.state, change.reason) for change in hook.changes] == [(NodeState.DOWN, refused)]
        node.restart()
        node.freeze()
        await asyncio.sleep(5)
        mute = "no answer to connect and login within 0.2 s"
        node.crash()
        await asyncio.sleep(5)
        assert [change.reason for change in hook.changes] == [refused, mute]
        assert all(change.state is NodeState.DOWN for change in hook.changes)
        node.restart()
        await asyncio.sleep(2)
        node.crash()
        await asyncio.sleep(2)
        states = [change.state for change in hook.changes[2:]]
        assert states == [NodeState.UP, NodeState.DOWN, NodeState.DOWN]
        assert hook.changes[-1].reason == refused, "it has been up meanwhile: news again"
        told = [f"node m is down: {change.reason}" for change in hook.changes if change.reason]
        assert warned(caplog) == told


@pytest.mark.parametrize("state", ["up", "refused", "mute"])
@virtual
async def test_closing_is_no_warning(state, caplog) -> None:
    """Closing adds no line of WARNING, whether the nodes are up or have been down for long."""
    nodes = [MemoryNode() for _ in range(3)]
    for node in nodes:
        if state != "up":
            node.crash() if state == "refused" else node.freeze()
    async with opened(nodes):
        await asyncio.sleep(5)
        before = warned(caplog)
    await asyncio.sleep(5)
    assert warned(caplog) == before
    assert len(before) == (0 if state == "up" else 3)


@virtual
async def test_when_a_majority_may_vote() -> None:
    """`available` and `unavailable_for` tell whether, or in how many seconds, a majority may vote (R12)."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    manager = make(nodes, restart_quarantine=60)

    def check(seconds: float, why: str = "") -> None:
        assert (manager.available, manager.unavailable_for) == (seconds == 0, seconds), why

    check(math.inf, "not started")
    await manager.start()
    check(0.0)
    nodes[0].restart()
    await asyncio.sleep(1)
    check(0.0, "two of three are enough")
    nodes[1].crash()
    await asyncio.sleep(1)
    wait = manager.statistics().nodes[0].votes_in
    assert wait is not None
    check(wait, "one votes, one will, one is down")
    assert wait == pytest.approx(60.61 - 2, abs=0.7)
    nodes[2].crash()
    await asyncio.sleep(1)
    check(math.inf, "of two nothing is known")
    for node in nodes[1:]:
        node.start()
    await asyncio.sleep(70)
    assert manager.available
    sentinel = nodes[0].get(PREFIX + b"{meta}") or b""
    nodes[0].set(PREFIX + b"{meta}", sentinel.replace(b":3:", b":5:"))
    await asyncio.sleep(1)
    assert manager.statistics().conflict, "it is another quorum's"
    check(math.inf)
    nodes[0].set(PREFIX + b"{meta}", sentinel)
    await asyncio.sleep(1)
    assert manager.available
    await manager.aclose()
    check(math.inf, "closed")


# -- leases ------------------------------------------------------------------------------------------


@virtual
async def test_only_what_is_held_is_counted() -> None:
    """A lease that was lost and is not released yet is not held, for the statistics and the repr."""
    async with world() as w:
        kept = await w.manager.lock("kept").acquire()
        lost = await w.manager.lock("lost", ttl=1, extension=PLAIN).acquire()

        def check(number: int) -> None:
            assert w.manager.statistics().held == number
            assert f", {number} held:" in repr(w.manager)

        check(2)
        await asyncio.sleep(2)
        assert not lost.held
        check(1)
        await lost.release()
        await kept.release()
        check(0)


# -- the master in memory ----------------------------------------------------------------------------


@virtual
async def test_a_master_forgets_connections_that_have_ended() -> None:
    """A frozen master whose clients give up, and which then dies, keeps none of their connections."""
    async with world() as w:
        for _ in range(3):
            w.nodes[0].freeze()
            await asyncio.sleep(5)
            assert w.manager.statistics().nodes[0].state is NodeState.DOWN
            w.nodes[0].crash()
            assert not w.nodes[0]._connections
            w.nodes[0].restart()
            await asyncio.sleep(3)
            assert len(w.nodes[0]._connections) == 1


@virtual
async def test_what_a_master_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the commands that a master has executed it keeps the last ones only."""
    monkeypatch.setattr(memory_node, "EXECUTED_KEPT", 10)
    node = MemoryNode()
    for number in range(100):
        node.execute([b"SET", b"%d" % number, b""])
        assert len(node.executed) <= 10
        assert node.executed[-1][1] == b"%d" % number
    assert [int(words[1]) for words in node.executed] == list(range(100 - len(node.executed), 100))
    assert len(node.executed) >= 5
