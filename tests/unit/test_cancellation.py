"""Whatever is cancelled, wherever it stands: no key, no task and no warning is left behind (R5, R6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from aioredlock_ng import Lease, Lock, LockError, RetryPolicy
from tests.unit.tasks import Tripwire, cycle, in_task, sim, turns
from tests.unit.traces import locks
from tests.unit.worlds import LATENCY, PLAIN, STRANGER, TTL, World, make, world

MAX_PAUSES = 60
"""More pauses than any of these operations has."""

PATIENCE = 0.15
"""Seconds that the operations wait for a lock."""

RETRY = RetryPolicy(base=0.04)
"""Few tries within that time."""

HEALED_AFTER = 1.0
"""Seconds after which the nodes of a scenario are whole again."""

CLEAN_AFTER = 4.0
"""Seconds after the healing by which every key must be gone: well before their ttl."""


@dataclass
class Case:
    """One run: the world, and the leases that an operation did get."""

    world: World
    leases: list[Lease] = field(default_factory=list)

    def lock(self, *names: str, **options: Any) -> Lock:
        """Describe a lock that is waited for, but not for long."""
        return self.world.manager.lock(*names, blocking_timeout=PATIENCE, **options)


Operation: TypeAlias = Callable[[Case], Coroutine[Any, Any, object]]


# -- what is cancelled -------------------------------------------------------------------------------


def acquiring(*names: str, **taken: tuple[float, ...]) -> Operation:
    """Acquire names, of which a stranger holds some for a time, on some nodes or on all."""

    async def acquire(case: Case) -> None:
        for name, (seconds, *nodes) in taken.items():
            case.world.occupy(name, seconds, *map(int, nodes))
        case.leases.append(await case.lock(*names).acquire())

    return acquire


async def try_once(case: Case) -> None:
    """Try once to acquire a lock that a stranger holds on one node."""
    case.world.occupy("a", 1000.0, 0)
    lease = await case.lock("a").try_acquire()
    if lease is not None:
        case.leases.append(lease)


async def queue(case: Case) -> None:
    """Stand in the queue of this process, with another task behind."""
    holder = case.leases[0]
    behind = in_task(case.lock("a").acquire)
    sim().call_later(0.02, lambda: case.world.tasks.append(in_task(holder.release)))
    try:
        async with case.lock("a"):
            await asyncio.sleep(0.01)
    finally:
        case.world.tasks.append(behind)


async def block(case: Case) -> None:
    """Hold a lock for two extensions, then leave the block."""
    async with case.lock("a", ttl=0.6):
        await asyncio.sleep(0)
        await asyncio.sleep(0.41)


async def nested_blocks(case: Case) -> None:
    """Hold one lock inside another."""
    async with case.lock("a"):
        await asyncio.sleep(0)
        async with case.lock("b", "c"):
            await asyncio.sleep(0.01)


async def lost_block(case: Case) -> None:
    """Lose a lock under a body that cleans up for a while."""
    async with case.lock("a", ttl=0.6, extension=PLAIN):
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0.01)


async def release(case: Case) -> None:
    """Release a lease that was acquired in peace."""
    await case.leases[0].release()


async def leave(case: Case) -> None:
    """Enter a lease that was acquired in peace, and leave it."""
    await cycle(case.leases[0])


async def extend(case: Case) -> None:
    """Extend twice in a row, beside another task that extends too."""
    lease = case.leases[0]
    case.world.tasks.append(in_task(lease.extend))
    await lease.extend()
    await lease.extend()


async def read_and_write(case: Case) -> None:
    """Read, write what depends on it, and become a reader."""
    lock = case.world.manager.rwlock("a", blocking_timeout=PATIENCE)
    async with lock.read() as read:
        await asyncio.sleep(0)
    async with lock.write(since=read) as lease:
        await lease.downgrade()


async def lead(case: Case) -> None:
    """Lead, and resign."""
    async with case.world.manager.election("a", blocking_timeout=PATIENCE).campaign() as leadership:
        await leadership.resign()


async def stand_in_line(case: Case) -> None:
    """Acquire a fair lock."""
    await cycle(case.world.manager.lock("a", fair=True, blocking_timeout=PATIENCE))


async def take_a_permit(case: Case) -> None:
    """Acquire a permit of a semaphore."""
    await cycle(case.world.manager.semaphore("a", permits=2, blocking_timeout=PATIENCE))


async def take_permits(case: Case) -> None:
    """Hold several permits of a semaphore, collected behind its door (R26a)."""
    await cycle(case.world.manager.fair_semaphore("a", permits=3, weight=2, blocking_timeout=PATIENCE))


async def first_use(case: Case) -> None:
    """Start a manager by its first lock, and close it."""
    manager = make(case.world.nodes, seed=77)
    async with manager, manager.lock("a", blocking_timeout=PATIENCE):
        pass


OPERATIONS: dict[str, Operation] = {
    "acquire": acquiring("a"),
    "acquire_several": acquiring("a", "b", "c"),
    "acquire_taken": acquiring("a", a=(0.05,)),
    "acquire_hopeless": acquiring("a", a=(1000.0, 0, 1)),
    "acquire_partly_taken": acquiring("a", "b", b=(0.05, 0, 1)),
    "try_once": try_once,
    "queue": queue,
    "block": block,
    "nested_blocks": nested_blocks,
    "lost_block": lost_block,
    "release": release,
    "leave": leave,
    "extend": extend,
    "read_and_write": read_and_write,
    "lead": lead,
    "stand_in_line": stand_in_line,
    "take_a_permit": take_a_permit,
    "take_permits": take_permits,
}

WITH_A_LEASE = (queue, release, leave, extend)
"""Those that begin with a lease acquired in peace."""


# -- the nodes it happens on -------------------------------------------------------------------------


def healthy(w: World) -> None:
    """Nothing is wrong."""


def late(w: World) -> None:
    """A majority answers after the node_timeout."""
    for node in w.nodes[:2]:
        node.latency = 0.2


def frozen(w: World) -> None:
    """One node is frozen."""
    w.nodes[1].freeze()


def mostly_frozen(w: World) -> None:
    """A majority is frozen."""
    w.nodes[0].freeze()
    w.nodes[2].freeze()


def dead(w: World) -> None:
    """One node is dead."""
    w.nodes[0].crash()


def breaking(w: World) -> None:
    """Connections are reset again and again, with commands and replies on their way."""
    for number in range(60):
        node = w.nodes[number % len(w.nodes)]
        sim().call_later(0.0007 + 0.011 * number, node.disconnect)


def dying(w: World) -> None:
    """A node dies with the commands on their way, another freezes a little later."""
    sim().call_later(0.0015, w.nodes[0].crash)
    sim().call_later(0.0035, w.nodes[1].freeze)


CONDITIONS = [healthy, late, frozen, mostly_frozen, dead, breaking, dying]


# -- every step --------------------------------------------------------------------------------------


def heal(w: World) -> None:
    """Have all nodes answer again."""
    for node in w.nodes:
        node.latency = LATENCY
        if node.frozen:
            node.thaw()
        elif not node.answers:
            node.restart()


@contextlib.asynccontextmanager
async def clean(case: Case) -> AsyncIterator[None]:
    """Heal the nodes after the body, release what was won, and look for remains."""
    yield
    w = case.world
    await asyncio.sleep(HEALED_AFTER)
    heal(w)
    for lease in case.leases:
        await lease.release()
    await asyncio.gather(*w.tasks)
    began = sim().time()
    while ours(w) and sim().time() < began + CLEAN_AFTER:
        await asyncio.sleep(0.1)
    assert ours(w) == []
    assert sim().time() - began < TTL / 2
    assert w.manager.statistics().held == 0
    assert w.manager.statistics().waiting == 0


def ours(w: World) -> list[bytes]:
    """Return the keys with an owner of ours, on any node."""
    return [key for node in w.nodes for key in locks(node) if node.get(key) != STRANGER]


async def trip(operation: Awaitable[object], at: int, *, waking: bool) -> Tripwire:
    """Cancel an operation at one of its pauses, and see that it ends by that, or as it may without it."""
    wire = Tripwire(operation, at, waking=waking)
    wire.end = end = await in_task(lambda: wire)
    assert isinstance(end.error, asyncio.CancelledError if wire.tripped else (type(None), LockError)), end
    assert end.cancelling == wire.tripped
    return wire


async def each_pause(cancel_at: Callable[[int], Awaitable[bool]]) -> int:
    """Cancel an operation at its first pause, at its second, …; return how many it has, and one."""
    for at in range(1, MAX_PAUSES):
        if not await cancel_at(at):
            return at
    pytest.fail("it has no end")


async def cancel_at(
    operation: Operation, condition: Callable[[World], None], at: int, *, waking: bool
) -> bool:
    """Run the operation in a world of its own, cancel it at one pause; False when it has fewer."""
    async with world(retry=RETRY) as w:
        before = asyncio.all_tasks()
        case = Case(w)
        if operation in WITH_A_LEASE:
            case.leases.append(await w.manager.lock("a", ttl=5).acquire())
        condition(w)
        async with clean(case):
            wire = await trip(operation(case), at, waking=waking)
        assert asyncio.all_tasks() == before
        return wire.pauses >= at


@pytest.mark.heavy
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_at_every_pause(operation, condition):
    """Cancelled at its first pause, at its second, … , asleep or as it wakes: whatever it had under way is
    undone on every node.
    """
    await each_pause(lambda at: cancel_at(OPERATIONS[operation], condition, at, waking=False))
    await each_pause(lambda at: cancel_at(OPERATIONS[operation], condition, at, waking=True))


@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize("condition", [healthy, frozen, mostly_frozen, dead])
async def test_cancelled_at_every_pause_of_a_first_use(condition, waking):
    """Also the start of a manager, its first lock and its closing leave neither a key nor a task behind."""
    assert await each_pause(lambda at: cancel_at(first_use, condition, at, waking=waking)) > 3


@pytest.mark.parametrize("operation", ["acquire", "nested_blocks", "queue"])
async def test_cancelled_in_any_turn_of_the_loop(operation):
    """Not only at the task's own pauses: cancelled in any turn of the loop around a win and a release."""
    for turn in range(1, 40):
        async with world(latency=0.0) as w:
            case = Case(w)
            async with clean(case):
                if OPERATIONS[operation] in WITH_A_LEASE:
                    case.leases.append(await w.manager.lock("a").acquire())
                task = in_task(lambda: OPERATIONS[operation](case))  # noqa: B023
                await turns(turn)
                task.cancel()
                await task


async def test_a_cancelled_release_has_still_released():
    """The releases are queued before the first pause: cancelled at once, they leave all the same."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        task = in_task(lease.release)
        await turns(1)
        task.cancel()
        end = await task
        assert isinstance(end.error, asyncio.CancelledError)
        assert not lease.held
        await asyncio.sleep(0.002)
        assert w.keys == [()] * 3
        report = await lease.release()
        assert {node.outcome.value for node in report.nodes} == {"released"}
