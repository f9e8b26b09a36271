"""Readers, writers, downgrades and campaigns, cancelled wherever they stand (R5, R6, R20 to R23, R31).

After each: neither a key nor a mark is left, nor one that waits; what others have is as it was, those that
wait for them come in, and so does the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from aioredlock_ng import Lease, LockError, LockManager
from tests.unit.test_cancellation import MAX_PAUSES, PATIENCE, RETRY, breaking, dying, healthy, late
from tests.unit.worlds import LATENCY, PREFIX, Tripwire, World, in_task, locks, sim, virtual, world

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


@dataclass
class Case:
    """One run: the world, another process of it, and what has been won."""

    w: World
    other: LockManager
    leases: list[Lease] = field(default_factory=list)
    """Of the process that is cancelled: to be released in the end."""

    def read(self, manager: LockManager | None = None, **options: Any) -> Any:
        """Describe a read lock."""
        return (manager or self.w.manager).rwlock("a", blocking_timeout=PATIENCE, **options).read()

    def write(self, manager: LockManager | None = None, *, since: Lease | None = None, **options: Any) -> Any:
        """Describe a write lock."""
        lock = (manager or self.w.manager).rwlock("a", blocking_timeout=PATIENCE, **options)
        return lock.write(since=since)


Operation: TypeAlias = Callable[[Case], Awaitable[object]]
Company: TypeAlias = Callable[[Case], AbstractAsyncContextManager[None]]


# -- what is cancelled -------------------------------------------------------------------------------


async def read(case: Case) -> None:
    """Read, and leave."""
    async with case.read():
        await asyncio.sleep(0.005)


async def write(case: Case) -> None:
    """Write, and leave."""
    async with case.write():
        await asyncio.sleep(0.005)


async def acquire_to_read(case: Case) -> None:
    """Acquire a read lease, and keep it."""
    case.leases.append(await case.read().acquire())


async def acquire_to_write(case: Case) -> None:
    """Acquire a write lease, and keep it."""
    case.leases.append(await case.write().acquire())


async def write_since(case: Case) -> None:
    """Read first, then write what depends on it."""
    async with case.read() as lease:
        await asyncio.sleep(0)
    async with case.write(since=lease) as lease:
        await asyncio.sleep(0.005)


async def become_a_reader(case: Case) -> None:
    """Write, become a reader, and leave."""
    async with case.write() as lease:
        await lease.downgrade()
        await asyncio.sleep(0.005)


async def become_a_reader_late(case: Case) -> None:
    """Become a reader behind an extension that is under way, and keep the lease."""
    lease = await case.write().acquire()
    case.leases.append(lease)
    case.w.tasks.append(in_task(lease.extend))
    await asyncio.sleep(0)
    await lease.downgrade()


async def lead(case: Case) -> None:
    """Lead, and resign."""
    async with case.w.manager.election("a").campaign():
        await asyncio.sleep(0.005)


async def lead_and_resign(case: Case) -> None:
    """Lead outside of a block."""
    leadership = await case.w.manager.election("a").campaign()
    case.leases.append(leadership._lease)
    await asyncio.sleep(0.005)
    await leadership.resign()


# -- beside whom -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def alone(case: Case) -> AsyncIterator[None]:
    """None else is there."""
    yield


@contextlib.asynccontextmanager
async def _beside(case: Case, lease: Lease) -> AsyncIterator[None]:
    """Hold a lease all the time, of which nothing may be touched."""
    w, owner = case.w, lease._holding.owner
    before = [node._server.scores(KEY).get(owner) for node in w.nodes]
    yield
    assert lease.held
    now = [node._server.scores(KEY).get(owner) if node.answers else None for node in w.nodes]
    assert sum(then is not None and then >= (was or 0) for was, then in zip(before, now, strict=True)) >= 2
    await lease.release()


@contextlib.asynccontextmanager
async def beside_a_reader(case: Case) -> AsyncIterator[None]:
    """Another process reads all the time."""
    async with _beside(case, await case.read(case.other).acquire()):
        yield


@contextlib.asynccontextmanager
async def beside_its_own_reader(case: Case) -> AsyncIterator[None]:
    """Another task of the process reads all the time."""
    async with _beside(case, await case.read().acquire()):
        yield


@contextlib.asynccontextmanager
async def _behind(case: Case, lease: Lease) -> AsyncIterator[None]:
    """Release it while the operation waits."""
    sim().call_later(OTHERS_STAY, lambda: case.w.tasks.append(in_task(lease.release)))
    yield


@contextlib.asynccontextmanager
async def behind_a_writer(case: Case) -> AsyncIterator[None]:
    """Another process writes for a while."""
    async with _behind(case, await case.write(case.other).acquire()):
        yield


@contextlib.asynccontextmanager
async def behind_its_own_writer(case: Case) -> AsyncIterator[None]:
    """Another task of the process writes for a while."""
    async with _behind(case, await case.write().acquire()):
        yield


@contextlib.asynccontextmanager
async def behind_a_writer_that_waits(case: Case) -> AsyncIterator[None]:
    """Another process reads, and a third one waits to write, does so, and leaves."""
    lease = await case.read(case.other).acquire()

    async def write_then() -> None:
        async with case.w.process() as third, third.rwlock("a").write():
            await asyncio.sleep(0.01)

    writer = asyncio.create_task(write_then())
    while not all(node._server.exists(QUEUE) for node in case.w.nodes):
        await asyncio.sleep(0.001)
    async with _behind(case, lease):
        yield
    await writer


@contextlib.asynccontextmanager
async def before_a_reader(case: Case) -> AsyncIterator[None]:
    """Another process waits to read; it comes in."""
    reader: list[asyncio.Task[None]] = []

    async def read_then() -> None:
        async with case.other.rwlock("a").read():
            pass

    sim().call_later(0.003, lambda: reader.append(asyncio.create_task(read_then())))
    yield
    for lease in case.leases:
        if lease.mode == "write":
            await lease.release()
    await asyncio.wait_for(reader[0], CLEAN_AFTER)


COMPANY: dict[Operation, list[Company]] = {
    read: [
        alone,
        beside_a_reader,
        beside_its_own_reader,
        behind_a_writer,
        behind_its_own_writer,
        behind_a_writer_that_waits,
    ],
    write: [
        alone,
        beside_a_reader,
        beside_its_own_reader,
        behind_a_writer,
        behind_its_own_writer,
        behind_a_writer_that_waits,
        before_a_reader,
    ],
    acquire_to_read: [alone, beside_a_reader, behind_a_writer, behind_its_own_writer],
    acquire_to_write: [alone, beside_a_reader, behind_a_writer, before_a_reader],
    write_since: [alone, beside_a_reader, behind_a_writer],
    become_a_reader: [alone, behind_a_writer, before_a_reader],
    become_a_reader_late: [alone, before_a_reader],
    lead: [alone, behind_a_writer, behind_its_own_writer],
    lead_and_resign: [alone, behind_a_writer],
}
CASES = [
    pytest.param(operation, company, id=f"{operation.__name__}-{company.__name__}")
    for operation, companies in COMPANY.items()
    for company in companies
]


# -- every step --------------------------------------------------------------------------------------


async def check_marks(case: Case) -> None:
    """Check that what was cancelled keeps no reader out."""
    if not any(lease.held and lease.mode != "read" for lease in case.leases):
        began = sim().time()
        lease = await case.read(case.other).acquire()
        assert sim().time() - began < SOON
        await lease.release()


async def check_next(case: Case) -> None:
    """Check that all come in one after the other, each at its first try."""
    assert await case.other.election("a").leader() is None
    for lock in (case.read(case.other), case.write(), case.read(), case.write(case.other)):
        lease = await lock.try_acquire()
        assert lease is not None
        await lease.release()
    async with case.other.election("a").campaign() as leadership:
        assert leadership.held


def heal(w: World) -> None:
    """Have all nodes answer again."""
    for node in w.nodes:
        node.latency = LATENCY
        if node.frozen:
            node.thaw()
        elif not node.answers:
            node.restart()


async def clean(case: Case) -> None:
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
    assert session.admission.in_flight == 0
    assert (w.manager.statistics().held, w.manager.statistics().waiting) == (0, 0)
    assert [node._server.listening(KEY) + node._server.listening(QUEUE) for node in w.nodes] == [0] * 3


async def cancel_at(
    operation: Operation, company: Company, condition: Callable[[World], None], at: int, *, waking: bool
) -> bool:
    """Run the operation in a world of its own, cancel it at one pause; False when it has fewer."""
    async with world(retry=RETRY) as w, w.process() as other:
        before = asyncio.all_tasks()
        case = Case(w, other)
        async with company(case):
            condition(w)
            sim().call_later(HEALED_AFTER, heal, w)
            wire = Tripwire(operation(case), at, waking=waking)
            end = await in_task(lambda: wire)
            expected = (asyncio.CancelledError,) if wire.tripped else (type(None), LockError)
            assert isinstance(end.error, expected), end
            assert end.cancelling == wire.tripped
            if condition is healthy and company in (alone, beside_a_reader):
                await check_marks(case)
            await asyncio.sleep(HEALED_AFTER + SETTLED)
        await clean(case)
        await check_next(case)
        assert asyncio.all_tasks() == before
        return wire.pauses >= at


@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize(("operation", "company"), CASES)
@virtual
async def test_cancelled_at_every_pause(operation, company, waking):
    """At its first pause, at its second, …: each of the others goes on, and nothing of it is left."""
    at = 1
    while await cancel_at(operation, company, healthy, at, waking=waking):
        at += 1
        assert at < MAX_PAUSES
    assert at > 1


@pytest.mark.parametrize("condition", [late, breaking, dying])
@pytest.mark.parametrize(("operation", "company"), CASES)
@virtual
async def test_cancelled_at_every_pause_on_nodes_that_fail(operation, company, condition):
    """Also where nodes are slow, silent, or lose connections meanwhile."""
    at = 1
    while await cancel_at(operation, company, condition, at, waking=at % 2 == 0):
        at += 1
        assert at < MAX_PAUSES


@pytest.mark.parametrize("extends", [False, True])
@virtual
async def test_a_cancelled_downgrade_is_one_once_it_is_asked_for(extends):
    """Before that it waits for an extension that is under way: then the lease is to write, as it was."""
    async with world() as w, w.process() as other:
        lease = await w.manager.rwlock("a").write().acquire()
        if extends:
            w.tasks.append(in_task(lease.extend))
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
        await asyncio.gather(*w.tasks)
