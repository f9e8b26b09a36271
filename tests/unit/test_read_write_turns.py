"""Readers and writers in turn: none of them starves, however many come again at once (R22, R33)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from tests.lua_edits import lua_number
from tests.unit.tasks import cancelled, sim, turns
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import ROUND_TRIP, opened, world

QUEUE = PREFIX + b"queue:{" + PREFIX + b"a}"
MARK = lua_number("parts/queue.lua", "MARK") / 1000
AWAITED = lua_number("parts/queue.lua", "AWAITED") / 1000
INSIDE = {"read": (0.005, 0.015), "write": (0.002, 0.006), "mutex": (0.002, 0.006)}
"""Seconds that a holder stays, from the shortest to the longest."""


def lock_of(manager, mode):
    """Describe the lock as a reader, a writer or a mutex."""
    return manager.lock("a") if mode == "mutex" else getattr(manager.rwlock("a"), mode)()


async def come_again(manager, mode, *, until, seed):
    """Hold the lock again and again, and return how long each call has waited for it."""
    draw, lock, waits = random.Random(seed), lock_of(manager, mode), []
    while sim().time() < until:
        began = sim().time()
        async with lock:
            waits.append(sim().time() - began)
            await asyncio.sleep(draw.uniform(*INSIDE[mode]))
        await asyncio.sleep(draw.uniform(0.0005, 0.003))
    assert waits, "none starves"
    return waits


async def waits_of(modes, *, seconds, processes=None, trip=0.00015, spread=10_000, tries=None):
    """Return how long calls of each mode have waited, when as many tasks came again at once.

    Each is a process of its own, unless they share some; where each is, the `tries` of a mode are counted.
    """
    draw = random.Random(17)
    async with (
        world(5, latency=lambda: trip + draw.expovariate(spread)) as w,
        contextlib.AsyncExitStack() as stack,
    ):
        number = processes or len(modes)
        managers = [await stack.enter_async_context(w.process()) for _ in range(number)]
        until = sim().time() + seconds
        waits = await asyncio.gather(
            *(
                come_again(managers[seed % number], mode, until=until, seed=seed)
                for seed, mode in enumerate(modes)
            )
        )
        if tries is not None:
            for manager, mode in zip(managers, modes, strict=True):
                told = manager.statistics()
                tries[mode] += told.acquired + told.refused
    return {
        mode: [one for other, each in zip(modes, waits, strict=True) if other == mode for one in each]
        for mode in modes
    }


@pytest.mark.parametrize(
    ("readers", "writers", "seconds"),
    [(8, 2, 0.5), pytest.param(20, 4, 2.0, marks=pytest.mark.campaign)],
    ids=str,
)
async def test_readers_and_writers_come_in_turn(readers, writers, seconds):
    """All readers get in after a writer, and each writer after the readers that were in; few ask in vain."""
    tries = Counter()
    waits = await waits_of(["read"] * readers + ["write"] * writers, seconds=seconds, tries=tries)
    reads, writes = waits["read"], waits["write"]
    assert max(reads) < 0.2
    assert max(writes) < 2.0
    assert len(reads) > 40 * readers * seconds
    assert len(writes) > 18 * seconds
    assert tries["read"] < 1.6 * len(reads)
    assert tries["write"] < 6.5 * len(writes)


# -- what a dead one costs -----------------------------------------------------------------------------


async def in_line(w, manager, mode):
    """Have a process wait for the lock, until it has been refused by the nodes; return its task."""
    before = count(w.nodes[0], mode)
    task = asyncio.create_task(lock_of(manager, mode).acquire())
    while count(w.nodes[0], mode) == before:
        await asyncio.sleep(ROUND_TRIP)
    await asyncio.sleep(5 * ROUND_TRIP)
    assert not task.done()
    return task


@contextlib.asynccontextmanager
async def dies_in_line(w, mode):
    """Have a process wait for the lock, and cut it off from all nodes, as its death would."""
    wires = [node.wire() for node in w.nodes]
    async with opened(wires, seed=99) as manager:
        task = await in_line(w, manager, mode)
        for wire in wires:
            wire.cut()
        task.cancel()
        yield


@pytest.mark.parametrize("readers", [1, 10])
async def test_the_mark_of_a_dead_writer_costs_a_second_once(readers):
    """New readers wait until it has ended, without asking all the time; then it is forgotten."""
    async with world() as w, contextlib.AsyncExitStack() as stack, w.manager.rwlock("a").read():
        managers = [await stack.enter_async_context(w.process()) for _ in range(readers)]
        async with dies_in_line(w, "write"):
            died, tries = sim().time(), count(w.nodes[0], "read")
            leases = await asyncio.gather(*(lock_of(manager, "read").acquire() for manager in managers))
            assert 0.5 < sim().time() - died < MARK + 0.1
            most = readers * (2 + MARK / 0.25)
            assert count(w.nodes[0], "read") - tries <= most, "a reminder at most every 0.25 s"
            began = sim().time()
            leases.append(await lock_of(managers[0], "read").acquire())
            assert sim().time() - began == pytest.approx(ROUND_TRIP)
            for lease in leases:
                await lease.release()


async def test_a_turn_ends_soon_after_its_first_reader():
    """Those behind it have a moment to come; a writer waits for no more, and for those that are in."""
    async with world() as w, w.process() as second, w.process() as third:
        first = await w.manager.rwlock("a").write().acquire()
        reader = await in_line(w, third, "read")
        writer = await in_line(w, second, "write")
        await first.release()
        lease = await reader
        began = sim().time()
        await turns(1)
        await lease.release()
        await (await writer).release()
        assert sim().time() - began < 0.05 < AWAITED


# -- marks -----------------------------------------------------------------------------------------------


def marks(w):
    """Return how many marks there are on the nodes, those that have ended, too."""
    return [len(node._server.scores(QUEUE)) for node in w.nodes]


async def test_marks_of_calls_that_died_are_dropped():
    """Where calls wait all the time, the hints do not grow by one for each that ever was killed."""
    async with world() as w, w.manager.rwlock("a").read():
        for number in range(20):
            for node in w.nodes:
                node._server.zadd(QUEUE, b"w%d" % number, node._server.time_us() // 1000 + 1000)
                node._server.pexpire(QUEUE, 1000)
            async with w.process() as other:
                waits = asyncio.create_task(other.rwlock("a").write().acquire())
                await asyncio.sleep(0.3)
                await cancelled(waits)
            assert max(marks(w)) <= 5
