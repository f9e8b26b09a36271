"""Readers and writers that are tasks of one process: their order, and which of them waits for all (R22)."""

from __future__ import annotations

import asyncio

from aioredlock_ng import RetryPolicy
from tests.unit.tasks import in_task, within
from tests.unit.traces import PREFIX
from tests.unit.worlds import ROUND_TRIP, each, world

KEY = PREFIX + b"a"
QUEUE = PREFIX + b"queue:{" + KEY + b"}"

NO_POLL = RetryPolicy(base=0.01, cap=1000.0)


def leave_marks(w):
    """Leave a writer's mark on the nodes, as another process does that waits."""
    for node in w.nodes:
        node._server.zadd(QUEUE, b"wforeign", node._server.time_us() // 1000 + 30_000)
        node._server.pexpire(QUEUE, 30_000)


async def test_a_single_try_to_read_shares_what_a_task_before_it_wins():
    """It waits for the verdict on that one, and then asks, too: it is not in the way."""
    async with world() as w:
        lock = w.manager.rwlock("a")
        first = in_task(lock.read().acquire)
        single = asyncio.create_task(lock.read().try_acquire())
        alone = asyncio.create_task(lock.write().try_acquire())
        lease = await single
        assert await alone is None
        await lease.release()
        assert (await first).error is None


async def test_one_task_waits_for_the_readers_of_a_process():
    """Of those that were let in together and refused the first waits for all, and none loses its turn."""
    async with world() as w:
        lock, done = w.manager.rwlock("a"), []
        async with lock.read():
            leave_marks(w)
            readers = [asyncio.create_task(lock.read().acquire()) for _ in range(3)]
            await asyncio.sleep(0.1)
            writer = asyncio.create_task(lock.write().acquire())
            for number, task in enumerate([*readers, writer]):
                task.add_done_callback(lambda _, number=number: done.append(number))
            await asyncio.sleep(2.0)
            entry = w.manager._life.session.queue.entries["a"]
            assert [ticket is entry.representative for ticket in entry.inside] == [False, True]
            assert len(entry.queue) == 3
            for node in w.nodes:
                node.delete(QUEUE)
            for task in readers:
                await (await task).release()
        await (await writer).release()
        assert done == [0, 2, 1, 3]


async def test_the_reader_that_waits_for_all_does_so_when_another_has_won():
    """One of two that asked is refused, and the other is not: a third reader waits behind the first."""
    async with world(retry=NO_POLL) as w, within(1.0):
        lock = w.manager.rwlock("a")
        async with lock.read():
            leave_marks(w)
            refused = asyncio.create_task(lock.read().acquire())
            await asyncio.sleep(ROUND_TRIP * 0.75)  # the nodes have refused it, and the answer is on its way
            each(w.nodes).delete(QUEUE)
            won = await asyncio.create_task(lock.read().acquire())
            late = asyncio.create_task(lock.read().acquire())
            await asyncio.sleep(3 * ROUND_TRIP)
            assert not late.done()
            each(w.nodes).execute([b"PUBLISH", KEY, b"1"])
            for task in (refused, late):
                await (await task).release()
            await won.release()
