"""Which clock counts, and when it is read (R2, R3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from aioredlock_ng import ConfigurationError, QuorumUnavailableError
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._node.pipe import Fail, Pipe
from aioredlock_ng._round.batch import Batch, FencedAcquires
from aioredlock_ng._round.round import verdict_known
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim, turns
from tests.unit.traces import locks
from tests.unit.worlds import TTL, opened


def test_the_clock_is_the_suspend_safe_one():
    """Leases live by the clock that goes on during suspend: neither by the wall clock nor by the loop's."""
    suspend_safe = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(suspend_safe)
    now, after = SystemClock().now(), time.clock_gettime(suspend_safe)
    assert before <= now <= after
    reads = SystemClock.now
    assert getattr(reads, "func", reads) is time.clock_gettime, (
        "no other clock, though it may show the same until a suspend"
    )
    assert reads.args == (suspend_safe,)


class Stalling:
    """Takes replies for a batch; after each the loop stands still for a while."""

    def __init__(self, batch: Batch, seconds: float) -> None:
        self._batch = batch
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        """As the other one's."""
        return getattr(self._batch, name)

    def recognises(self, node: int, data: bytes, at: int, tag: bytes) -> int:
        """Have every reply parsed."""
        return 0

    def hear(self, node: int, reply: object, tag: bytes, fail: Fail) -> bool:
        """Hand the reply over, and stand still."""
        fits = self._batch.hear(node, reply, tag, fail)
        sim().advance(self._seconds)
        return fits


def stalled_by_grants(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the loop stand still behind every node's answer to acquires."""
    post = Pipe.post

    def stall(pipe: Pipe, batches: Sequence[Batch], replies: int, index: int) -> bool:
        sent = [Stalling(each, seconds) if isinstance(each, FencedAcquires) else each for each in batches]
        return post(pipe, sent, replies, index)

    patch.setattr(Pipe, "post", stall)


async def test_a_win_is_judged_when_the_task_goes_on(monkeypatch):
    """The tally was won in time, then the loop stood still until hardly any validity was left: no lock."""
    master = MemoryNode()
    stalled_by_grants(monkeypatch, 0.95 * TTL)
    async with opened([master]) as manager:
        with pytest.raises(QuorumUnavailableError, match="too late"):
            await manager.lock("a").try_acquire()
        assert locks(master) == ()


async def test_no_lock_is_taken_from_nodes_that_turn_out_to_be_no_quorum():
    """They are found to be at fault between the verdict and the moment when the task goes on (A4)."""
    master = MemoryNode()
    async with opened([master]) as manager:
        task = asyncio.create_task(manager.lock("a").acquire())
        await turns(1)
        session = manager._life.session
        assert session is not None
        (attempt,) = session.in_flight
        availability = session.availability
        attempt.round.then(verdict_known, lambda: setattr(availability, "conflict", "two are one server"))
        with pytest.raises(ConfigurationError, match="two are one server"):
            await task
        await asyncio.sleep(1)
        assert locks(master) == ()


async def test_a_stall_that_leaves_enough_costs_no_lock(monkeypatch):
    """The loop stood still between the tally's win and the task, but most of the validity is left: a lock."""
    stalled_by_grants(monkeypatch, 0.1 * TTL)
    async with opened([MemoryNode()]) as manager:
        lease = await manager.lock("a").try_acquire()
        assert 0.85 * TTL < lease.remaining < 0.9 * TTL
        await lease.release()
