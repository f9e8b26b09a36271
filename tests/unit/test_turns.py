"""Turns: a process that always wants a lock lets others have it, at a small and bounded price (R13)."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time

import pytest

from aioredlock_ng import LockManager, LockTakenError, _acquire, _gate
from aioredlock_ng._gate import TURN, YIELD, Gates
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import LATENCY, World, opened, sim, virtual, world

NAME = "a"
WATCHED = 20.0
"""Seconds of virtual time for which processes are watched."""

PRICE = 0.12
"""Share of its locks that a process alone may lose: a tenth, and the round trips around each pause."""


async def busy(manager: LockManager, hold: float, times: list[float]) -> None:
    """Take the lock again and again, without any pause; write down when."""
    while True:
        async with manager.lock(NAME):
            times.append(sim().time())
            await asyncio.sleep(hold)


async def watched(managers: dict[LockManager, int], hold: float) -> list[list[float]]:
    """Let each manager's so many tasks loop; return when each manager had the lock."""
    times: list[list[float]] = [[] for _ in managers]
    tasks = [
        asyncio.create_task(busy(manager, hold, had))
        for (manager, number), had in zip(managers.items(), times, strict=True)
        for _ in range(number)
    ]
    await asyncio.sleep(WATCHED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return times


@pytest.mark.parametrize(("tasks", "hold", "fewest"), [(4, 0.001, 10), (4, 0.05, 10), (1, 0.05, 10)], ids=str)
@pytest.mark.parametrize("seed", [1, 3, 7])
def test_a_busy_process_starves_nobody(tasks, hold, fewest, seed):
    """However many tasks of a process hand a lock to each other, one task of another process gets it, too."""

    @virtual
    async def main() -> None:
        nodes = [MemoryNode(latency=0.0005) for _ in range(3)]
        async with opened(nodes, seed=seed) as one, opened(nodes, seed=seed + 1) as other:
            _, times = await watched({one: tasks, other: 1}, hold)
        assert len(times) >= fewest
        began = sim().time() - WATCHED
        waits = [end - start for start, end in itertools.pairwise([began, *times, began + WATCHED])]
        assert max(waits) < 0.75 * WATCHED, "it had its share in one piece only"

    main()


@pytest.mark.parametrize("tasks", [1, 4])
def test_the_price_of_turns_is_a_tenth(tasks, monkeypatch):
    """A process that is alone loses about a tenth of its locks to its pauses, and no more."""
    counts: list[int] = []

    @virtual
    async def main() -> None:
        nodes = [MemoryNode(latency=0.0005) for _ in range(3)]
        async with opened(nodes) as manager:
            (times,) = await watched({manager: tasks}, 0.001)
        counts.append(len(times))

    main()
    monkeypatch.setattr(_gate, "TURN", float("inf"))
    main()
    paused, free = counts
    assert (1 - PRICE) * free < paused < free
    assert pytest.approx(0.1) == YIELD / TURN


@virtual
async def test_who_comes_now_and_then_never_pauses():
    """A pause is for a process that never lets go: a lock wanted every now and then is had at once."""
    async with world() as w:
        for _ in range(10):
            began = sim().time()
            async with w.manager.lock(NAME):
                assert sim().time() - began == pytest.approx(2 * LATENCY)
                await asyncio.sleep(TURN)
            await asyncio.sleep(YIELD)


@virtual
async def test_a_single_try_never_pauses():
    """try_acquire() asks at once, even when its process has had its turn."""
    async with world() as w:
        lock = w.manager.lock(NAME)
        for _ in range(20):
            began = sim().time()
            lease = await lock.try_acquire()
            assert lease is not None
            assert sim().time() - began == pytest.approx(2 * LATENCY)
            await asyncio.sleep(TURN / 5)
            await lease.release()


@virtual
async def test_a_turn_ends_with_a_refusal():
    """Who has just been refused has let others have the lock: it does not pause on top of that."""
    async with world() as w:
        async with w.manager.lock(NAME):
            await asyncio.sleep(2 * TURN)
        w.occupy(NAME, None)
        assert await w.manager.lock(NAME).try_acquire() is None
        w.vacate(NAME)
        began = sim().time()
        async with w.manager.lock(NAME):
            assert sim().time() - began == pytest.approx(2 * LATENCY)


@virtual
async def test_the_memory_of_turns_is_bounded(monkeypatch):
    """Names are many: only the last of them are remembered, and the oldest are forgotten first."""
    monkeypatch.setattr(_gate, "MAX_TURNS", 10)
    async with world(1) as w:
        for number in range(25):
            async with w.manager.lock(f"{number}"):
                pass
        runtime = w.manager._runtime
        assert runtime is not None
        assert list(runtime.gates._turns) == [f"{number}" for number in range(15, 25)]


# -- many who wait -----------------------------------------------------------------------------------


def seconds_per_leave(number: int) -> float:
    """Measure how long one of so many waiters takes to leave the queue, the last one first."""
    gates = Gates()
    assert gates.enter(NAME, single_try=False) is None
    turns = [gates.enter(NAME, single_try=False) for _ in range(number)]
    random.Random(number).shuffle(turns)
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        for turn in turns:
            assert turn is not None
            gates.leave(NAME, turn)
        return (time.perf_counter() - began) / number
    finally:
        gc.enable()


@virtual
async def test_leaving_a_queue_costs_the_same_however_long_it_is():
    """The time that waiters who give up together cost grows with their number, not with its square."""
    ratios = []
    for _ in range(3):
        ratios.append(seconds_per_leave(16_000) / seconds_per_leave(1_000))
        if ratios[-1] < 4:
            return
    pytest.fail(f"sixteen times as many, and each of them took {ratios} times as long")


@virtual
async def test_many_waiters_that_are_cancelled_together_leave_nothing():
    """12,000 tasks wait for a held lock and are cancelled in one turn of the loop; then the lock is free."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = [asyncio.create_task(w.manager.lock(NAME).acquire()) for _ in range(12_000)]
        await asyncio.sleep(0.01)
        assert w.manager.statistics().waiting == len(tasks)
        for task in reversed(tasks):
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert w.manager.statistics().waiting == 0
        await lease.release()
        async with w.manager.lock(NAME, blocking_timeout=0):
            pass


async def line_up(w: World, number: int) -> list[asyncio.Task[object]]:
    """Let so many tasks wait for the lock."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(w.manager.lock(NAME).acquire()) for _ in range(number)
    ]
    await asyncio.sleep(0.01)
    return tasks


@virtual
async def test_the_number_of_waiters_is_bounded(monkeypatch):
    """One waiter too many is told at once that the lock is taken, and why; others are not disturbed."""
    monkeypatch.setattr(_acquire, "MAX_WAITERS", 3)
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = await line_up(w, 3)
        began = sim().time()
        with pytest.raises(LockTakenError, match="more than 3 tasks") as caught:
            await w.manager.lock(NAME).acquire()
        assert caught.value.names == (NAME,)
        assert sim().time() == began
        async with w.manager.lock("b"):
            pass
        tasks.pop().cancel()
        await asyncio.sleep(0)
        tasks += await line_up(w, 1)
        await lease.release()
        for task in tasks:
            lease = await task  # type: ignore[assignment]
            await lease.release()
