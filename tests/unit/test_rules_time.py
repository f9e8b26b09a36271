"""Which clock counts, and when it is read (R2, R3)."""

from __future__ import annotations

import time

import pytest

from aioredlock_ng import QuorumUnavailableError
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._core.command import Command, Purpose, Reply, Sink
from aioredlock_ng._node import Node
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import TTL, locks, opened, sim, virtual


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
    """Takes replies for another sink; after each the loop stands still for a while."""

    def __init__(self, sink: Sink, seconds: float) -> None:
        self._sink = sink
        self._seconds = seconds

    @property
    def pending(self) -> bool:
        """As the other one's."""
        return self._sink.pending

    def on_reply(self, node: int, reply: Reply) -> None:
        """Hand the reply over, and stand still."""
        self._sink.on_reply(node, reply)
        sim().advance(self._seconds)


def stalled_by_grants(master: MemoryNode, seconds: float) -> Node:
    """Return a node behind whose answer to an acquire the loop stands still."""
    node = master.link()
    submit = node.submit

    def stall(command: Command, sink: Sink, index: int) -> None:
        acquire = command.purpose is Purpose.ACQUIRE
        submit(command, Stalling(sink, seconds) if acquire else sink, index)

    node.submit = stall  # type: ignore[method-assign]
    return node


@virtual
async def test_a_win_is_judged_when_the_task_goes_on():
    """The tally was won in time, then the loop stood still until hardly any validity was left: no lock."""
    master = MemoryNode()
    async with opened([stalled_by_grants(master, 0.95 * TTL)]) as manager:
        with pytest.raises(QuorumUnavailableError, match="too late"):
            await manager.lock("a").try_acquire()
        assert locks(master) == ()


@virtual
async def test_a_stall_that_leaves_enough_costs_no_lock():
    """The loop stood still between the tally's win and the task, but most of the validity is left: a lock."""
    async with opened([stalled_by_grants(MemoryNode(), 0.1 * TTL)]) as manager:
        lease = await manager.lock("a").try_acquire()
        assert 0.85 * TTL < lease.remaining < 0.9 * TTL
        await lease.release()
