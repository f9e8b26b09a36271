"""A node that listens to channels: over reconnects, in order with its commands.  On virtual time (R13)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

import pytest

from aioredlock_ng._core.command import Reply
from aioredlock_ng._core.quorum_view import HEARTBEAT, QuorumView
from aioredlock_ng._node import Node, NodeEnv, NodeState
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim

KEY = b"redlock:a"
LATENCY = 0.001
OTHER = b"redlock:b"


class Hearing:
    """A node, and what it has heard."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.notices: list[tuple[float, bytes]] = []
        self.replies: list[Reply] = []
        self.awaited = True

    def noticed(self, node: Node, channel: bytes, message: object) -> None:
        """Write down a notice."""
        assert node is self.node
        assert isinstance(message, bytes)
        self.notices.append((sim().time(), channel))

    def on_reply(self, _: int, reply: Reply) -> None:
        """Write down a reply."""
        self.replies.append(reply)

    async def hear(self, channel: bytes = KEY) -> None:
        """Wait until a subscription stands."""
        async with asyncio.timeout(30):
            while not self.node.is_subscribed(channel):
                await asyncio.sleep(0.0001)


@contextlib.asynccontextmanager
async def hearing(
    server: MemoryNode, *channels: bytes, quorum_view: QuorumView | None = None
) -> AsyncIterator[Hearing]:
    """Run a node for as long as the block lasts, with subscriptions that stand."""
    it = Hearing(server.link())
    it.node.bind(
        NodeEnv(
            clock=sim().clock, random=Random(0), node_timeout=0.1, connect_timeout=0.5,
            on_change=lambda _: None, on_notice=it.noticed, quorum_view=quorum_view,
        )
    )  # fmt: skip
    task = asyncio.create_task(it.node.run())
    try:
        await it.node.settled.wait()
        for channel in channels:
            it.node.subscribe(channel)
            await it.hear(channel)
        yield it
    finally:
        task.cancel()
        await it.node.aclose()


@pytest.mark.parametrize(("breaks", "mends"), [("freeze", "thaw"), ("crash", "restart")])
async def test_a_node_that_does_not_answer_is_told_when_it_does(breaks: str, mends: str) -> None:
    """Subscribing neither waits nor fails; what is not confirmed does not stand."""
    server = MemoryNode(latency=LATENCY)
    async with hearing(server, KEY) as it:
        getattr(server, breaks)()
        it.node.subscribe(OTHER)
        await asyncio.sleep(1)
        assert not it.node.is_subscribed(OTHER)
        getattr(server, mends)()
        await it.hear(OTHER)


@pytest.mark.parametrize("frozen", [False, True], ids=["quarantined", "suspect"])
async def test_a_node_without_a_vote_may_be_listened_to(frozen: bool) -> None:
    """A notice is a hint and no vote."""
    server = MemoryNode(latency=LATENCY)
    server.set(b"redlock:{meta}", b"1:another:0:99999999999999:1:60000")
    quorum_view = QuorumView(key=b"redlock:{meta}", size=1, quarantine_ms=60_000, read_only=False)
    async with hearing(server, quorum_view=quorum_view) as it:
        assert it.node.status.state is NodeState.QUARANTINED
        if frozen:
            server.freeze()
            await asyncio.sleep(3 * HEARTBEAT)
            assert it.node.status.state is NodeState.SUSPECT
        it.node.subscribe(KEY)
        server.thaw()
        await it.hear()
        server.execute([b"PUBLISH", KEY, b""])
        await asyncio.sleep(0.01)
        assert [channel for _, channel in it.notices] == [KEY]
