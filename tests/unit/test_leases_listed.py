"""`statistics().leases`: what a manager holds now."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LeaseStatistics
from aioredlock_ng._statistics import MAX_LEASES
from aioredlock_ng.testing import MemoryNode, lose
from tests.unit.worlds import LATENCY, PLAIN, TTL, make, virtual, world

AGE = 2 * LATENCY
"""Seconds that a lease is old when it is won."""


@virtual
async def test_what_is_held_is_listed():
    """Names, label, fence and age, oldest first; an extension makes none younger."""
    async with world() as w:
        first = await w.manager.lock("b", "a", label="pair").acquire()
        await asyncio.sleep(TTL)
        second = await w.manager.lock("c").acquire()
        old, new = w.manager.statistics().leases
        assert (old.names, old.label, old.fence) == (("a", "b"), "pair", first.fence)
        assert old.age == pytest.approx(TTL + 2 * AGE)
        assert new == LeaseStatistics(names=("c",), label="", fence=second.fence, age=pytest.approx(AGE))
        await first.release()
        assert [lease.names for lease in w.manager.statistics().leases] == [("c",)]
        await second.release()
        assert w.manager.statistics().leases == ()


@virtual
async def test_without_fencing_there_is_no_fence():
    """It is None, as that of the lease."""
    async with world(fencing=False) as w, w.manager.lock("a"):
        assert [lease.fence for lease in w.manager.statistics().leases] == [None]


@virtual
async def test_what_is_not_held_any_more_is_not_listed():
    """Lost, or past its validity: not ours, though it is not released."""
    async with world() as w:
        expired = await w.manager.lock("a", extension=PLAIN).acquire()
        lost = await w.manager.lock("b").acquire()
        lose(w.manager, "b")
        assert [lease.names for lease in w.manager.statistics().leases] == [("a",)]
        await asyncio.sleep(TTL)
        assert w.manager.statistics().leases == ()
        assert w.manager.statistics().held == 0
        await expired.release()
        await lost.release()


@virtual
async def test_of_many_the_newest_are_listed():
    """The list has a limit; the count has none."""
    async with world(1) as w:
        leases = [await w.manager.lock(f"{number:04}").acquire() for number in range(MAX_LEASES + 2)]
        statistics = w.manager.statistics()
        assert statistics.held == MAX_LEASES + 2
        assert [lease.names[0] for lease in statistics.leases] == [
            f"{n:04}" for n in range(2, MAX_LEASES + 2)
        ]
        await asyncio.gather(*(lease.release() for lease in leases))


@virtual
async def test_a_manager_that_has_not_been_used_holds_nothing():
    """Statistics need no start."""
    assert make([MemoryNode()]).statistics().leases == ()
    await asyncio.sleep(0)
