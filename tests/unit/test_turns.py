"""Turns: a process that always wants a lock lets others have it, at a small and bounded price (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from aioredlock_ng import Lease, LockLostError, LockManager, LockTakenError
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import LATENCY, World, count, in_task, opened, sim, turns, virtual, world

NAME = "a"
ROUND_TRIP = 2 * LATENCY
WATCHED = 5.0
"""Seconds of virtual time for which processes are watched."""

HANDOFF = "aioredlock_ng._local.handoff."
WINDOW = 0.05
"""Seconds for which a process has its turn."""
YIELD = 0.025
"""Seconds for which it keeps still then, where others listen."""
GLIMPSE = 0.001
"""And where none does."""

PRICE = 0.1
"""Share of its locks that a process alone may lose: a glimpse and some round trips for each turn."""


@contextlib.asynccontextmanager
async def at_it(managers: dict[LockManager, int], hold: float):
    """Let each manager's so many tasks take the lock without a pause; yield when each manager had it."""
    times: list[list[float]] = [[] for _ in managers]

    async def busy(manager: LockManager, had: list[float]) -> None:
        while True:
            async with manager.lock(NAME):
                had.append(sim().time())
                await asyncio.sleep(hold)

    tasks = [
        asyncio.create_task(busy(manager, had))
        for (manager, number), had in zip(managers.items(), times, strict=True)
        for _ in range(number)
    ]
    try:
        yield times
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watched(managers: dict[LockManager, int], hold: float) -> list[list[float]]:
    """Return when each manager had the lock, of which so many tasks wanted it all the time."""
    async with at_it(managers, hold) as times:
        await asyncio.sleep(WATCHED)
    return times


def longest_wait(times: list[float]) -> float:
    """Return the longest time that a process was without the lock."""
    ended = sim().time()
    return max(end - start for start, end in itertools.pairwise([ended - WATCHED, *times, ended]))


def apart(seed: int) -> list[MemoryNode]:
    """Make nodes that are not all alike."""
    draw = random.Random(seed)
    return [MemoryNode(latency=lambda: draw.uniform(0.0004, 0.0006)) for _ in range(3)]


async def handed_on(w: World, after: float) -> float:
    """Have a task wait behind a lease that is held for so long; return its seconds from there to the lock."""
    lease = await w.manager.lock(NAME).acquire()
    task = in_task(w.manager.lock(NAME).acquire)
    await asyncio.sleep(after)
    released = sim().time()
    await lease.release()
    return (await task).at - released


# -- others get their turn -----------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("processes", "tasks", "hold"), [(2, 4, 0.001), (2, 4, 0.05), (2, 1, 0.001), (4, 5, 0.001)], ids=str
)
@pytest.mark.parametrize("seed", [1, 3])
@virtual
async def test_busy_processes_take_turns(processes, tasks, hold, seed):
    """Each of them has much of its fair share, and never waits for longer than some turns of the others."""
    nodes = apart(seed)
    async with contextlib.AsyncExitStack() as stack:
        opening = [opened(nodes, seed=10 * seed + number) for number in range(processes)]
        managers = [await stack.enter_async_context(manager) for manager in opening]
        shares = await watched(dict.fromkeys(managers, tasks), hold)
    numbers = [len(times) for times in shares]
    assert min(numbers) >= (0.8 if processes == 2 else 0.5) * sum(numbers) / processes, numbers
    # Of four three draw for each turn: 20 were seen.
    assert max(map(longest_wait, shares)) <= (2 * (WINDOW + hold) if processes == 2 else 24 * WINDOW)


@pytest.mark.parametrize(
    ("tasks", "hold"), [pytest.param(4, 0.0, marks=pytest.mark.heavy), (4, 0.01), (1, 0.01)], ids=str
)
@virtual
async def test_a_busy_process_lets_a_newcomer_in(tasks, hold):
    """A waiter for a lock that another process never lets go waits for one turn of it, whenever it comes."""
    nodes = apart(5)
    async with opened(nodes, seed=1) as one, opened(nodes, seed=2) as other, at_it({one: tasks}, hold):
        for number in range(30):
            await asyncio.sleep(YIELD + number * WINDOW / 23)
            began = sim().time()
            async with other.lock(NAME):
                assert sim().time() - began <= WINDOW + YIELD + 2 * hold


@virtual
async def test_a_turn_is_bounded_in_count(monkeypatch):
    """However little time hand-offs take, another process gets in after so many of them."""
    monkeypatch.setattr(HANDOFF + "WINDOW", 1000.0)
    monkeypatch.setattr(HANDOFF + "MAX_HAND_OFFS", 5)
    async with world() as w, w.process() as other, at_it({w.manager: 4}, 0.0) as (times,):
        await asyncio.sleep(0.1)
        for _ in range(5):
            before = len(times)
            async with other.lock(NAME):
                # One that is over while this one asks for the first time, and a whole one.
                assert len(times) - before <= 2 * 5
            await asyncio.sleep(YIELD)


# -- what it costs -------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("tasks", [1, 4])
def test_the_price_of_turns_is_small(tasks, monkeypatch):
    """A process that is alone loses next to none of its locks to its pauses."""
    counts: list[int] = []

    @virtual
    async def main() -> None:
        async with opened(apart(1)) as manager:
            (times,) = await watched({manager: tasks}, 0.001)
        counts.append(len(times))

    main()
    monkeypatch.setattr(HANDOFF + "WINDOW", float("inf"))
    monkeypatch.setattr(HANDOFF + "MAX_HAND_OFFS", 10**9)
    main()
    paused, free = counts
    assert (1 - PRICE) * free < paused < free


@pytest.mark.parametrize("alone", [True, False])
@virtual
async def test_a_turn_ends_with_a_pause(alone):
    """A glimpse for pollers, where nothing listens; a yield, where a waiter does."""
    async with world() as w, w.process() as other:
        if not alone:
            w.occupy("b", None)
            listener = in_task(other.lock("b", NAME, blocking_timeout=2 * WINDOW).acquire)
        took = await handed_on(w, 2 * WINDOW - LATENCY)
        assert took == pytest.approx(2 * ROUND_TRIP + (GLIMPSE if alone else YIELD), abs=ROUND_TRIP)
        if not alone:
            assert isinstance((await listener).error, LockTakenError)


@pytest.mark.parametrize("single_try", [False, True])
@virtual
async def test_when_no_pause_is_made(single_try):
    """For a lock that is wanted now and then; and a single try asks at once, also after a turn."""
    async with world() as w:
        for _ in range(20):
            began = sim().time()
            lock = w.manager.lock(NAME)
            lease = await (lock.try_acquire() if single_try else lock.acquire())
            assert sim().time() - began == pytest.approx(ROUND_TRIP)
            await asyncio.sleep(WINDOW / 5 if single_try else WINDOW)
            await lease.release()
            await asyncio.sleep(0 if single_try else YIELD)


@virtual
async def test_a_pause_is_part_of_the_wait():
    """Whose time ends in a pause asks when it is over, and no later."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock(NAME).acquire()
        task = in_task(w.manager.lock(NAME, blocking_timeout=WINDOW + YIELD / 2).acquire)
        w.occupy("b", None)
        listener = in_task(other.lock(NAME, "b", blocking_timeout=2 * WINDOW).acquire)
        began = sim().time()
        await asyncio.sleep(WINDOW)
        await lease.release()
        end = await task
        assert end.error is None
        assert end.at - began == pytest.approx(WINDOW + YIELD / 2 + ROUND_TRIP)
        await listener


@pytest.mark.parametrize("why", ["refused", "lost", "cancelled"])
@virtual
async def test_a_turn_begins_with_a_lock_that_was_had(why):
    """What was had before a refusal, a loss, or a pause that was cancelled is not counted."""
    async with world() as w:
        if why == "refused":
            async with w.manager.lock(NAME):
                await asyncio.sleep(0.8 * WINDOW)
            w.occupy(NAME, None)
            assert await w.manager.lock(NAME).try_acquire() is None
            w.vacate(NAME)
            assert await handed_on(w, 0.8 * WINDOW) == pytest.approx(ROUND_TRIP)
        elif why == "lost":
            async with w.manager.lock(NAME):
                await asyncio.sleep(0.6 * WINDOW)
            lost = await w.manager.lock(NAME).acquire()
            w.vacate(NAME)
            with pytest.raises(LockLostError):
                await lost.extend()
            assert await handed_on(w, 0.6 * WINDOW) == pytest.approx(ROUND_TRIP)
            await lost.release()
        else:
            lease = await w.manager.lock(NAME).acquire()
            paused = asyncio.create_task(w.manager.lock(NAME).acquire())
            await asyncio.sleep(2 * WINDOW)
            await lease.release()
            await turns(2)
            paused.cancel()
            await asyncio.wait([paused])
            assert paused.cancelled()
            assert count(w.nodes[0], "acquire") == 1, "it had not asked still"
            await asyncio.sleep(2 * WINDOW)
            assert await handed_on(w, LATENCY) == pytest.approx(ROUND_TRIP)


@virtual
async def test_the_memory_of_turns_is_bounded(monkeypatch):
    """Names are many: only the last of them are remembered, and the oldest are forgotten first."""
    monkeypatch.setattr(HANDOFF + "MAX_WINDOWS", 10)
    async with world(1) as w:
        for number in range(25):
            async with w.manager.lock(f"{number}"):
                pass
        assert list(w.manager._life.session.queue.handoff.windows) == [f"{n}" for n in range(15, 25)]


@virtual
async def test_the_number_of_waiters_is_bounded(monkeypatch):
    """One waiter too many is told at once that the lock is taken, and why; others are not disturbed."""
    monkeypatch.setattr("aioredlock_ng._acquire.acquisition.MAX_WAITERS", 3)
    async with world() as w:

        async def line_up(number: int) -> list[asyncio.Task[Lease]]:
            tasks = [asyncio.create_task(w.manager.lock(NAME).acquire()) for _ in range(number)]
            await asyncio.sleep(0.01)
            return tasks

        lease = await w.manager.lock(NAME).acquire()
        tasks = await line_up(3)
        began = sim().time()
        with pytest.raises(LockTakenError, match="more than 3 tasks") as caught:
            await w.manager.lock(NAME).acquire()
        assert caught.value.names == (NAME,)
        assert sim().time() == began
        async with w.manager.lock("b"):
            pass
        tasks.pop().cancel()
        await asyncio.sleep(0)
        tasks += await line_up(1)
        await lease.release()
        for task in tasks:
            await (await task).release()
