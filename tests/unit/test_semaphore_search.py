"""Never more holders than permits, whatever happens to nodes, connections and clients (R24 to R26).

Random schedules on virtual time, with the shipping code: processes that ask, hold, extend, go by force and
come back; nodes that stand still, answer late, lose connections and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Final

import pytest

from aioredlock_ng import Lease, LockManager, QuorumUnavailableError
from aioredlock_ng.errors import LockError
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim
from tests.unit.test_semaphore import NAME, slots
from tests.unit.worlds import make

TTL: Final = 0.5
LATENCY: Final = 0.004
"""Seconds that a message takes, in the mean."""
LENGTH: Final = 6.0
"""Seconds of a schedule."""


class Pool:
    """A semaphore, its processes, and what must hold at every moment."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes = [MemoryNode(latency=self.usual) for _ in range(random.choice((3, 5)))]
        self.permits = random.randint(1, 3)
        self.fencing = random.random() < 0.5
        self.held: list[Lease] = []
        self.fences: dict[int | None, int] = {}
        self.wins = 0

    def usual(self) -> float:
        """Return how long a message takes: never the same, so that nodes hear of tries in other orders."""
        return self.random.expovariate(1 / LATENCY)

    def check(self) -> None:
        """No more leases than permits are held at once, and none of them in one slot."""
        held = [lease for lease in self.held if lease.held]
        assert len(held) <= self.permits, held
        assert len({lease.slot for lease in held}) == len(held), held

    def note(self, lease: Lease) -> None:
        """Take a lease that was won: its fence is above all that its slot had."""
        self.wins += 1
        self.held.append(lease)
        self.check()
        if self.fencing:
            assert lease.fence > self.fences.get(lease.slot, 0)
            self.fences[lease.slot] = lease.fence

    async def work(self, manager: LockManager, permits: int) -> None:
        """Ask again and again, as one task of a process."""
        random = self.random
        while True:
            limit = random.choice((0.0, 0.1, 0.5))
            try:
                lease = await manager.semaphore(NAME, permits=permits, blocking_timeout=limit).acquire()
            except LockError:
                await asyncio.sleep(random.uniform(0.0, 0.1))
                continue
            self.note(lease)
            try:
                for _ in range(random.randint(0, 4)):
                    await asyncio.sleep(random.uniform(0.0, random.choice((0.05, 0.4)) * TTL))
                    self.check()
                    with contextlib.suppress(LockError):
                        if random.random() < 0.3:
                            await lease.extend()
            finally:
                await lease.release()
                self.held.remove(lease)

    async def break_things(self) -> None:
        """Do something to a node, and make it good again; memory may be lost on all of them."""
        random = self.random
        while True:
            await asyncio.sleep(random.uniform(0.0, 0.2))
            node = random.choice(self.nodes)
            what = random.choice(("late", "late", "frozen", "cut", "cut", "empty"))
            if what == "late":
                node.latency = random.choice((0.02, 0.06, 0.2))
            elif what == "frozen":
                node.freeze()
            elif what == "cut":
                node.disconnect()
            elif random.random() < 0.3:
                for each in random.sample(self.nodes, random.randint(1, len(self.nodes))):
                    each.restart()
            await asyncio.sleep(random.uniform(0.0, 0.4))
            node.thaw()
            node.latency = self.usual

    @contextlib.asynccontextmanager
    async def processes(self) -> AsyncIterator[list[tuple[LockManager, int]]]:
        """Open the processes, most of which know of all permits."""
        async with contextlib.AsyncExitStack() as stack:
            opened = []
            for seed in range(self.random.randint(3, 5)):
                manager = make(
                    self.nodes,
                    seed=seed,
                    ttl=TTL,
                    restart_quarantine=TTL,
                    node_timeout=0.05,
                    fencing=self.fencing,
                )
                fewer = max(1, self.permits - 1)
                permits = self.random.choice((self.permits, self.permits, fewer))
                opened.append((await stack.enter_async_context(manager), permits))
            yield opened


async def _schedule(seed: int) -> int:
    random = Random(seed)
    pool = Pool(random)
    async with pool.processes() as processes:
        tasks = [
            asyncio.create_task(pool.work(manager, permits))
            for manager, permits in processes
            for _ in range(random.randint(1, 3))
        ]
        breaking = asyncio.create_task(pool.break_things())
        ends = sim().time() + LENGTH
        while sim().time() < ends:
            await asyncio.sleep(random.uniform(0.0, 0.05))
            pool.check()
            if random.random() < 0.05:  # a task is cancelled, at whatever it waits
                place = random.randrange(len(tasks))
                tasks[place].cancel()
                await asyncio.gather(tasks[place], return_exceptions=True)
                tasks[place] = asyncio.create_task(pool.work(*random.choice(processes)))
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
        for task in (*tasks, breaking):
            task.cancel()
        for outcome in await asyncio.gather(*tasks, breaking, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome
        for node in pool.nodes:
            node.thaw()
            node.latency = pool.usual
        await asyncio.sleep(2 * TTL)
        assert [slots(node) for node in pool.nodes] == [{}] * len(pool.nodes)
        await all_free(processes[0][0], pool.permits)
    return pool.wins


async def all_free(manager: LockManager, permits: int) -> None:
    """See that every permit can be had again."""
    while True:
        try:
            leases = [await manager.semaphore(NAME, permits=permits).acquire() for _ in range(permits)]
        except QuorumUnavailableError:
            await asyncio.sleep(TTL)
        else:
            break
    assert {lease.slot for lease in leases} == set(range(permits))
    for lease in leases:
        await lease.release()


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(8)),
        *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(8, 18)),
    ],
)
async def test_never_more_hold_it_than_may(seed):
    """In a few schedules, or in many: each is drawn, and permits are won in it."""
    assert await _schedule(seed) > 10
