"""No call waits without end for a call that holds nothing: marks and places in line are claims (R13, R22).

What runs here cannot wait in a circle for locks that are *held*: a task that has one and asks for another
only reads, beside writers that hold nothing while they wait; or all tasks take single names in one order.  So
all of it must come to its end, whatever waits for several names at once in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, Final

import pytest

from aioredlock_ng import Lock, LockManager
from tests.unit.tasks import cancelled, sim
from tests.unit.worlds import ROUND_TRIP, world

REMINDER: Final = 0.5
"""Seconds between two tries of a call that waits, at most."""

KEEPS_OUT: Final = 5.0
"""Seconds for which a call keeps a name while it waits for another one, at first."""
LETS_IN: Final = 0.25
"""Seconds for which it lets others in then."""

NAMES: Final = ("a", "b", "c")
LONGEST: Final = 120.0
"""Seconds in which everything must be over: many times what a run without a standstill takes."""


async def one_inside_another(locks: list[Lock], draw: random.Random) -> None:
    """Take one lock after the other, each by a lease that no task is bound to; keep all until the last."""
    leases = []
    await asyncio.sleep(draw.uniform(0.0, 0.5))
    for lock in locks:
        leases.append(await lock.acquire())
        await asyncio.sleep(draw.uniform(0.0, 0.5))
    for lease in leases:
        await lease.release()


def schedule(draw: random.Random, managers: list[LockManager], kind: str) -> list[Coroutine[Any, Any, None]]:
    """Draw some calls, each in any of the processes."""
    calls = []
    for _ in range(draw.randint(2, 6)):
        names = draw.sample(NAMES, draw.randint(1, 3))
        if draw.random() < 0.5:  # it has nothing while it waits for all of them
            mode = kind if kind == "mutex" else draw.choice(["read", "write"])
            locks = [lock_of(draw.choice(managers), mode, *names)]
        else:  # mutexes in one order, and not that in which a process looks at several
            mode = kind if kind == "mutex" else "read"
            names = sorted(names, reverse=True) if kind == "mutex" else names
            locks = [lock_of(draw.choice(managers), mode, name) for name in names]
        calls.append(one_inside_another(locks, draw))
    return calls


@pytest.mark.parametrize("kind", ["rwlock", "mutex"])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("seeds", [range(start, start + 6) for start in range(0, 30, 6)], ids=str)
async def test_all_come_to_their_end(seeds, processes, kind):
    """However calls for several names, and readers and locks one inside another, come between each other."""
    for seed in seeds:
        draw = random.Random(f"{seed} {processes} {kind}")
        async with world() as w, contextlib.AsyncExitStack() as stack:
            managers = [w.manager]
            managers += [await stack.enter_async_context(w.process()) for _ in range(processes - 1)]
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*schedule(draw, managers, kind))


def lock_of(manager: LockManager, mode: str, *names: str) -> Lock:
    """Describe a lock as a reader's, a writer's or a mutex."""
    lock = manager.rwlock(*names)
    return manager.lock(*names) if mode == "mutex" else lock.read() if mode == "read" else lock.write()


@contextlib.asynccontextmanager
async def beside(calls: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run them as long as the block does."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        yield
    finally:
        await cancelled(*tasks)


# -- free names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read", "write", "mutex"])
@pytest.mark.parametrize("waits_in", [0, 1])
async def test_a_free_name_is_for_others_while_a_call_waits_for_another(mode, waits_in):
    """The process that has the one name gets the other at once, and so does a third process."""
    async with world() as w, w.process() as second, w.process() as third:
        managers = [w.manager, second, third]
        has = await lock_of(w.manager, mode, "b").acquire()
        both = lock_of(managers[waits_in], "write" if mode == "read" else mode, "a", "b")
        waits = asyncio.create_task(both.acquire())
        await asyncio.sleep(0.5)
        for manager in (w.manager, third):
            began = sim().time()
            async with lock_of(manager, mode, "a"):
                assert sim().time() - began < 10 * ROUND_TRIP
        await has.release()
        await (await waits).release()


async def test_a_call_for_several_names_gets_in_however_long_the_lines_are():
    """It keeps the one name while it waits for the other, for longer and longer."""
    async with world() as w:

        async def use(name: str) -> None:
            while True:
                async with w.manager.lock(name):
                    await asyncio.sleep(2.0)

        async with beside(use(name) for name in "ab" * 5):
            await asyncio.sleep(1.0)
            began = sim().time()
            async with asyncio.timeout(60.0), w.manager.lock("a", "b"):
                assert sim().time() - began > 10.0


# -- names that are read -------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 3])
async def test_readers_that_a_writer_keeps_from_each_others_names_get_in(processes):
    """It waits for both of them, and each of them for it: it lets them in, and comes after them."""
    async with world() as w, w.process() as two, w.process() as three:
        first, second, third = (w.manager, two, three) if processes == 3 else (w.manager,) * 3
        a, b = await first.rwlock("a").read().acquire(), await second.rwlock("b").read().acquire()
        writer = asyncio.create_task(third.rwlock("a", "b").write().acquire())
        await asyncio.sleep(0.1)
        began = sim().time()
        more = await asyncio.gather(first.rwlock("b").read().acquire(), second.rwlock("a").read().acquire())
        assert KEEPS_OUT - 1.0 < sim().time() - began < KEEPS_OUT + REMINDER + LETS_IN
        assert not writer.done()
        for lease in (a, b, *more):
            await lease.release()
        await (await writer).release()
        assert sim().time() - began < KEEPS_OUT + 2 * REMINDER + LETS_IN


@pytest.mark.parametrize("processes", [1, 3])
async def test_a_writer_gets_in_however_long_readers_stay(processes):
    """It keeps new ones out for longer and longer, until those that are in have gone meanwhile."""
    async with world() as w, w.process() as second, w.process() as third:
        managers = [second, third] if processes == 3 else [w.manager]

        async def read(manager: LockManager, delay: float) -> None:
            await asyncio.sleep(delay)
            while True:
                async with manager.rwlock("a").read():
                    await asyncio.sleep(8.0)

        async with beside(read(managers[i % len(managers)], i * 1.5) for i in range(6)):
            await asyncio.sleep(20.0)
            began = sim().time()
            async with asyncio.timeout(20.0), w.manager.rwlock("a").write():
                assert sim().time() - began > 8.0
