"""Answers that come late: what is too late counts as silence, what is only far away counts."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import Lease, LockNotAcquiredError, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng.events import NodeChanged, Refused
from tests.unit.traces import Heard
from tests.unit.worlds import LATENCY, ROUND_TRIP, world

JUST_TOO_LATE = 0.0525
"""Seconds one way: the answer comes 5 ms after a node_timeout, while the release is under way."""


def changes(heard: Heard) -> list[NodeState]:
    """Return how nodes' states have changed."""
    return [event.state for event in heard.of(NodeChanged)]


def assert_silent(error: LockNotAcquiredError) -> None:
    """Check that an error tells of three silent nodes."""
    assert isinstance(error, QuorumUnavailableError)
    assert [vote.vote for vote in error.votes] == [Vote.SILENT] * 3
    assert all("no answer within" in vote.reason for vote in error.votes)


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=str)
@pytest.mark.parametrize("how", ["try", "zero", "some"])
async def test_late_grants_are_no_holder(names, how):
    """When the lock is free and every grant comes too late, it is not said to be held."""
    heard = Heard()
    async with world(latency=JUST_TOO_LATE, hooks=[heard]) as w:
        lock = w.manager.lock(*names, blocking_timeout={"zero": 0, "some": 0.5}.get(how))
        with pytest.raises(QuorumUnavailableError) as caught:
            await (lock.try_acquire() if how == "try" else lock.acquire())
        assert_silent(caught.value)
        assert {event.taken for event in heard.of(Refused)} == {False}
        await asyncio.sleep(1)
        assert_silent(caught.value)  # only releases learn from answers that come too late
        assert w.keys == [()] * 3, "what was granted late was not undone"


async def test_a_node_that_is_far_away_is_not_mute():
    """With a round trip above the heartbeat but below the node_timeout no node is ever suspect."""
    heard = Heard()
    options = {"node_timeout": 2.0, "connect_timeout": 5.0, "ttl": 30.0, "hooks": [heard]}
    async with world(latency=0.3, **options) as w:
        for number in range(60):
            async with w.manager.lock("a", blocking_timeout=0):
                await asyncio.sleep(0.17 * (number % 12))
        assert changes(heard) == [NodeState.UP] * 3
        w.nodes[0].freeze()  # a longer node_timeout postpones the suspicion, but does not end it
        await asyncio.sleep(6)
        assert changes(heard)[3:] == [NodeState.SUSPECT]
        w.nodes[0].thaw()
        await asyncio.sleep(4 * LATENCY + 2)
        assert changes(heard)[4:] == [NodeState.UP]


# -- releases ------------------------------------------------------------------------------------------


async def outcomes(lease: Lease) -> list[str]:
    """Release, perhaps again, and return what the report says of each node."""
    return [node.outcome.value for node in (await lease.release()).nodes]


@pytest.mark.parametrize("keep_data", [True, False])
async def test_a_release_called_again_knows_what_the_ledger_has_learnt(keep_data):
    """A node that was down gets the release when it is back: it still had the key, or had lost it."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        await asyncio.sleep(ROUND_TRIP)
        w.nodes[2].crash(keep_data=keep_data)
        w.nodes[0].disconnect()
        assert (await outcomes(lease))[2] == "unknown"
        w.nodes[2].restart()
        await asyncio.sleep(2)
        assert await outcomes(lease) == ["released"] * 2 + ["released" if keep_data else "was not held"]
        assert w.keys == [()] * 3


@pytest.mark.parametrize("forgets", [1, 2])
async def test_a_body_leaves_when_a_majority_has_answered_and_no_majority_released(forgets):
    """One node is down and one has lost its key: the last answer is a grant, or a refusal."""

    async def use() -> float:
        async with w.manager.lock("a"):
            w.nodes[0].crash()
            w.vacate("a", forgets)
            await asyncio.sleep(ROUND_TRIP)
            return asyncio.get_running_loop().time()

    async with world() as w:
        task = asyncio.create_task(use())
        await asyncio.wait((task,), timeout=1.0)
        assert task.done(), "it waits for ever"
        assert asyncio.get_running_loop().time() - task.result() == pytest.approx(ROUND_TRIP)
