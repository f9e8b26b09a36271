"""Holders of other programs, which publish no releases: they are polled, and get their share (R13)."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import ANOTHER, PREFIX, count, in_task, sim, virtual, world

NAME = "shared"
SECTION = 0.005
"""Seconds inside the lock."""
POLL = 0.02
"""Seconds that other libraries wait between two tries, at most."""


async def stranger(nodes: list[MemoryNode], wins: list[int], number: int, draw: random.Random) -> None:
    """Lock, work and release again and again, as other libraries do: by polls of 0 to 20 ms."""
    key = PREFIX + NAME.encode()
    for value in itertools.count():
        while any(node.get(key) is not None for node in nodes):
            await asyncio.sleep(draw.uniform(0, POLL))
        for node in nodes:
            node.set(key, b"%032x" % value, 10.0)
        await asyncio.sleep(SECTION)
        for node in nodes:
            node.delete(key)
        wins[number] += 1
        await asyncio.sleep(draw.uniform(0.0005, 0.002))


async def one_of_ours(manager: LockManager, wins: list[int], number: int, draw: random.Random) -> None:
    """Do the same by this package."""
    while True:
        async with manager.lock(NAME):
            await asyncio.sleep(SECTION)
            wins[number] += 1
        await asyncio.sleep(draw.uniform(0.0005, 0.002))


@pytest.mark.parametrize(
    ("ours", "strangers", "size"), [(1, 1, 1), (1, 3, 3), pytest.param(2, 2, 3, marks=pytest.mark.heavy)]
)
@virtual
async def test_ours_get_half_of_a_fair_share_and_leave_enough(ours: int, strangers: int, size: int) -> None:
    """One of ours, which got a tenth; several tell each other, and leave the stranger less."""
    draw = random.Random(7)
    wins = [0] * (ours + strangers)
    async with world(size, latency=0.00025) as w, w.process() as other:
        managers = (w.manager, other)[:ours]
        jobs = [one_of_ours(one, wins, number, draw) for number, one in enumerate(managers)]
        jobs += [stranger(w.nodes, wins, ours + number, draw) for number in range(strangers)]
        tasks = [asyncio.create_task(job) for job in jobs]
        await asyncio.sleep(5.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    fair = sum(wins) / len(wins)
    assert min(wins[:ours]) >= fair / 2, wins
    assert min(wins[ours:]) >= fair / (2 if ours == 1 else 4), wins


@virtual
async def test_a_foreign_holder_is_polled_from_the_first_refusal() -> None:
    """As `RetryPolicy` says: from 10 ms on, doubled up to half a second, and not more often for that."""
    async with world() as w:
        w.occupy(NAME, 1000.0)
        began = sim().time()
        task = in_task(w.manager.lock(NAME, blocking_timeout=30.0).acquire)
        await asyncio.sleep(0.1)
        assert count(w.nodes[0], "acquire") >= 4
        await asyncio.sleep(5.0)
        before = count(w.nodes[0], "acquire")
        await task
        assert sim().time() - began >= 30.0
        assert 25 / 0.5 <= count(w.nodes[0], "acquire") - before <= 25 / 0.15


@virtual
async def test_a_minority_of_foreign_keys_is_not_polled() -> None:
    """The release of the others is told of."""
    async with world() as w:
        w.occupy(NAME, 1000.0, value=ANOTHER)
        w.occupy(NAME, 1000.0, 1)
        task = in_task(w.manager.lock(NAME, blocking_timeout=5.0).acquire)
        await task
        assert count(w.nodes[0], "acquire") <= 1 + 5 / 0.25 + 1
