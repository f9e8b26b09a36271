"""Processes that share a semaphore over five servers, while nodes fail and a holder dies (R24 to R26)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.faults.contention import contention

NAME: Final = "pool"
PROCESSES: Final = 5
TASKS: Final = 3
PERMITS: Final = 3
SOME: Final = 100  # turns after which a fault has had its effect


@pytest.mark.timeout(120)
async def test_never_more_hold_it_than_may(nodes5: LocalNodes) -> None:
    """Tasks of five processes, three permits: slots are never shared, and fences grow in each."""
    kinds = [str(PERMITS)] * PROCESSES
    async with contention(
        nodes5.urls, kinds=kinds, names=[NAME] * TASKS, inside=0.01, idle=0.003, ttl=5.0
    ) as contenders:
        await contenders.more(SOME)
        nodes5.pause(0)
        await contenders.more(SOME)
        nodes5.resume(0)
        nodes5.kill(1)
        await contenders.more(SOME)
        await nodes5.restart(1)
        await contenders.more(SOME)
        contenders.workers.pop().process.kill()  # wherever that strikes
        await contenders.more(SOME)
        contenders.stop()
        await contenders.ended()
        assert {number for number, *_ in contenders.turns} == set(range(PROCESSES)), "each has had a turn"
    assert {claim.slot for claim in contenders.claims[NAME]} == set(range(PERMITS))
    async with LockManager(nodes5.urls) as manager:
        pool = manager.semaphore(NAME, permits=PERMITS, blocking_timeout=60.0)
        leases = [await pool.acquire() for _ in range(PERMITS)]  # none is lost with the dead
        assert {lease.slot for lease in leases} == set(range(PERMITS))
        for lease in leases:
            await lease.release()


@pytest.mark.timeout(120)
async def test_those_that_want_several_get_them_in_turns(nodes5: LocalNodes) -> None:
    """Managers that want 1, 2 or 3 of three permits (R26a): no slot is shared, and none goes without."""
    turns, held, stops = Counter[int](), set[int](), asyncio.Event()

    async def work(number: int, manager: LockManager) -> None:
        while not stops.is_set():
            block = manager.fair_semaphore(NAME, permits=PERMITS, weight=1 + number % PERMITS, ttl=5.0)
            async with block as leases:
                slots = {lease.slot for lease in leases}
                assert len(slots) == len(leases)
                assert held.isdisjoint(slots)
                held.update(slots)
                turns[number] += 1
                await asyncio.sleep(0.005)
                held.difference_update(slots)

    async def more() -> None:
        wanted = turns.total() + SOME // 2
        while turns.total() < wanted:
            await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number in range(PROCESSES):
            manager = await stack.enter_async_context(LockManager(nodes5.urls))
            group.create_task(work(number, manager))
        await more()
        nodes5.pause(0)
        await more()
        nodes5.resume(0)
        nodes5.kill(1)
        await more()
        stops.set()
    assert turns.total() > SOME
    # They take turns, whatever each wants; a call that was late for its turn was passed over.
    assert min(turns[number] for number in range(PROCESSES)) > max(turns.values()) / 4
