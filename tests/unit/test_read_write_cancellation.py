"""Readers, writers, downgrades and campaigns, cancelled wherever they stand (R5, R6, R20 to R23, R31).

After each: neither a key nor a mark is left, nor one that waits; what others have is as it was, those that
wait for them come in, and so does the next call.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.unit.tasks import in_task, sim
from tests.unit.test_cancellation import (
    PATIENCE,
    RETRY,
    breaking,
    dying,
    each_pause,
    heal,
    healthy,
    late,
    trip,
)
from tests.unit.traces import PREFIX, locks
from tests.unit.worlds import world

KEY = PREFIX + b"a"
QUEUE = PREFIX + b"queue:{" + KEY + b"}"

HEALED_AFTER = 0.4
"""Seconds after which the nodes are whole again: a campaign waits for that."""

SETTLED = 1.5
"""Seconds after that in which connections are there again, and marks of calls that waited have ended."""

OTHERS_STAY = 0.03
"""Seconds for which those that are in the way stay there."""

SOON = 0.05
"""Seconds in which others come in that nothing keeps out any more, on nodes that are well."""

CLEAN_AFTER = 6.0
"""Seconds after the healing by which all keys and marks must be gone: well before the ttl."""


class Case:
    """One run: the world, another process of it, and the leases of the one that is cancelled."""

    def __init__(self, w, other):
        self.w, self.other, self.leases = w, other, []

    def read(self, manager=None):
        """Describe a read lock."""
        return (manager or self.w.manager).rwlock("a", blocking_timeout=PATIENCE).read()

    def write(self, manager=None, since=None):
        """Describe a write lock."""
        return (manager or self.w.manager).rwlock("a", blocking_timeout=PATIENCE).write(since=since)


# -- what is cancelled -------------------------------------------------------------------------------


async def read(case):
    """Read, and leave."""
    async with case.read():
        await asyncio.sleep(0.005)


async def write(case):
    """Write, and leave."""
    async with case.write():
        await asyncio.sleep(0.005)


async def acquire_to_read(case):
    """Acquire a read lease, and keep it."""
    case.leases.append(await case.read().acquire())


async def acquire_to_write(case):
    """Acquire a write lease, and keep it."""
    case.leases.append(await case.write().acquire())


async def write_since(case):
    """Read first, then write what depends on it."""
    async with case.read() as lease:
        await asyncio.sleep(0)
    async with case.write(since=lease):
        await asyncio.sleep(0.005)


async def become_a_reader(case):
    """Write, become a reader, and leave."""
    async with case.write() as lease:
        await lease.downgrade()
        await asyncio.sleep(0.005)


async def become_a_reader_late(case):
    """Become a reader behind an extension that is under way, and keep the lease."""
    lease = await case.write().acquire()
    case.leases.append(lease)
    case.w.tasks.append(in_task(lease.extend))
    await asyncio.sleep(0)
    await lease.downgrade()


async def lead(case):
    """Lead, and resign."""
    async with case.w.manager.election("a").campaign():
        await asyncio.sleep(0.005)


async def lead_and_resign(case):
    """Lead outside of a block."""
    leadership = await case.w.manager.election("a").campaign()
    case.leases.append(leadership._lease)
    await asyncio.sleep(0.005)
    await leadership.resign()


# -- beside whom -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def company(case, beside):
    """Have others there: a reader all the time, a writer for a while, or those that wait."""
    whose = case.other if "its own" not in beside else case.w.manager
    if beside == "alone":
        yield
    elif beside.startswith("beside"):
        lease = await case.read(whose).acquire()
        owner = lease._holding.owner
        before = [node._server.scores(KEY).get(owner, 0) for node in case.w.nodes]
        yield
        assert lease.held
        now = [node._server.scores(KEY).get(owner, -1) if node.answers else -1 for node in case.w.nodes]
        assert sum(then >= was for was, then in zip(before, now, strict=True)) >= 2
        await lease.release()
    elif beside == "before a reader":
        waits = []
        sim().call_later(0.003, lambda: waits.append(in_task(case.other.rwlock("a").read().acquire)))
        yield
        for lease in case.leases:
            if lease.mode == "write":
                await lease.release()
        assert (await asyncio.wait_for(waits[0], CLEAN_AFTER)).error is None
    else:
        waits = beside == "behind a writer that waits"
        lease = await (case.read if waits else case.write)(whose).acquire()
        async with case.w.process() as third:
            if waits:
                case.w.tasks.append(in_task(third.rwlock("a").write().acquire))
                while not all(node._server.exists(QUEUE) for node in case.w.nodes):
                    await asyncio.sleep(0.001)
            sim().call_later(OTHERS_STAY, lambda: case.w.tasks.append(in_task(lease.release)))
            yield
            assert not waits or (await case.w.tasks[0]).error is None


ALL = ("alone", "beside a reader", "beside its own reader", "behind a writer", "behind its own writer",
       "behind a writer that waits")  # fmt: skip
COMPANY = {
    read: ALL,
    write: (*ALL, "before a reader"),
    acquire_to_read: ("alone", "beside a reader", "behind a writer", "behind its own writer"),
    acquire_to_write: ("alone", "beside a reader", "behind a writer", "before a reader"),
    write_since: ("alone", "beside a reader", "behind a writer"),
    become_a_reader: ("alone", "behind a writer", "before a reader"),
    become_a_reader_late: ("alone", "before a reader"),
    lead: ("alone", "behind a writer", "behind its own writer"),
    lead_and_resign: ("alone", "behind a writer"),
}
CASES = [
    pytest.param(operation, beside, id=f"{operation.__name__} {beside}".replace(" ", "_"))
    for operation, besides in COMPANY.items()
    for beside in besides
]


# -- every step --------------------------------------------------------------------------------------


async def check_marks(case):
    """Check that what was cancelled keeps no reader out."""
    if not any(lease.held and lease.mode != "read" for lease in case.leases):
        began = sim().time()
        lease = await case.read(case.other).acquire()
        assert sim().time() - began < SOON
        await lease.release()


async def check_next(case):
    """Check that all come in one after the other, each at its first try."""
    assert await case.other.election("a").leader() is None
    for lock in (case.read(case.other), case.write(), case.read(), case.write(case.other)):
        lease = await lock.try_acquire()
        await lease.release()
    async with case.other.election("a").campaign() as leadership:
        assert leadership.held


async def clean(case):
    """Release what was won, and look for remains."""
    w = case.w
    for lease in case.leases:
        await lease.release()
    await asyncio.gather(*w.tasks)
    began = sim().time()
    while any(locks(node) for node in w.nodes) and sim().time() < began + CLEAN_AFTER:
        await asyncio.sleep(0.1)
    assert [locks(node) for node in w.nodes] == [()] * 3
    session = w.manager._life.session
    assert session.queue.entries == {}
    assert session.attempt_limiter.in_flight == 0
    assert (w.manager.statistics().held, w.manager.statistics().waiting) == (0, 0)
    assert [node._server.listening(KEY) + node._server.listening(QUEUE) for node in w.nodes] == [0] * 3


async def cancel_at(operation, beside, condition, at, *, waking):
    """Run the operation in a world of its own, cancel it at one pause; False when it has fewer."""
    async with world(retry=RETRY) as w, w.process() as other:
        before = asyncio.all_tasks()
        case = Case(w, other)
        async with company(case, beside):
            condition(w)
            sim().call_later(HEALED_AFTER, heal, w)
            wire = await trip(operation(case), at, waking=waking)
            if condition is healthy and beside in ("alone", "beside a reader"):
                await check_marks(case)
            await asyncio.sleep(HEALED_AFTER + SETTLED)
        await clean(case)
        await check_next(case)
        assert asyncio.all_tasks() == before
        return wire.pauses >= at


@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize(("operation", "beside"), CASES)
async def test_cancelled_at_every_pause(operation, beside, waking):
    """At its first pause, at its second, …: each of the others goes on, and nothing of it is left."""
    assert await each_pause(lambda at: cancel_at(operation, beside, healthy, at, waking=waking)) > 1


@pytest.mark.parametrize("condition", [late, breaking, dying])
@pytest.mark.parametrize(("operation", "beside"), CASES)
async def test_cancelled_at_every_pause_on_nodes_that_fail(operation, beside, condition):
    """Also where nodes are slow, silent, or lose connections meanwhile."""
    await each_pause(lambda at: cancel_at(operation, beside, condition, at, waking=at % 2 == 0))


@pytest.mark.parametrize("extends", [False, True])
async def test_a_cancelled_downgrade_is_one_once_it_is_asked_for(extends):
    """Before that it waits for an extension that is under way: then the lease is to write, as it was."""
    async with world() as w, w.process() as other:
        lease = await w.manager.rwlock("a").write().acquire()
        tasks = [in_task(lease.extend)] if extends else []
        await asyncio.sleep(0)
        task = in_task(lease.downgrade)
        await asyncio.sleep(0)
        task.cancel()
        assert isinstance((await task).error, asyncio.CancelledError)
        assert lease.mode == ("write" if extends else "read")
        reader = await other.rwlock("a", blocking_timeout=PATIENCE).read().try_acquire()
        assert (reader is None) is extends
        for each in (lease, reader):
            if each is not None:
                await each.release()
        await asyncio.gather(*tasks)
