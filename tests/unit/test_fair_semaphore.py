"""Fair semaphores on virtual time: several permits at once, in the order of the calls (R26a)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, LockTakenError, WouldDeadlockError
from aioredlock_ng.testing import MemoryNode, SimLoop
from aioredlock_ng.testing._memory_data import Hash
from tests.unit.tasks import cycle, sim, within
from tests.unit.traces import PREFIX
from tests.unit.worlds import LATENCY, TTL, world

HOLD, TIMES = 0.005, 6
KEY = PREFIX + b"gpu"


@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_each_wants_none_waits_for_ever_or_is_passed_over(seed: int, gives_up: bool) -> None:
    """Without a door they would hold a part each, and wait for each other; who gives up leaves nothing."""
    chance, holders, served = random.Random(seed), dict[int, int](), list[float]()

    async def process(number: int, manager: LockManager) -> None:
        weight = chance.randint(1, 4)
        for _ in range(TIMES):
            await asyncio.sleep(chance.uniform(0, 2 * HOLD))
            asked = sim().time()
            limit = chance.uniform(0, 8 * HOLD) if gives_up and chance.random() < 0.5 else None
            block = manager.fair_semaphore("gpu", permits=4, weight=weight)
            try:
                async with asyncio.timeout(limit), block as leases:
                    slots = {lease.slot for lease in leases}
                    assert len(slots) == weight
                    assert holders.keys().isdisjoint(slots)
                    holders.update(dict.fromkeys(slots, number))
                    served.append(asked)
                    try:
                        await asyncio.sleep(chance.uniform(0, 2 * HOLD))
                    finally:
                        for slot in slots:
                            del holders[slot]
            except TimeoutError:
                assert gives_up

    async with world() as w, AsyncExitStack() as stack:
        managers = [await stack.enter_async_context(w.process()) for _ in range(8)]
        async with within(10.0):
            await asyncio.gather(*map(process, range(8), managers))
        await cycle(w.manager.fair_semaphore("gpu", permits=4, weight=4, blocking=False))
    if not gives_up:
        assert len(served) == 8 * TIMES
        # Within a few round trips either of two may be first.
        for place, asked in enumerate(served):
            assert max(served[: place + 1]) <= asked + 10 * LATENCY


async def test_the_limit_is_for_all_permits_together() -> None:
    """The permits that it has collected until then are free again."""
    async with world() as w:
        held, began = await w.manager.semaphore("gpu", permits=3).acquire(), sim().time()
        with pytest.raises(LockTakenError):
            await cycle(w.manager.fair_semaphore("gpu", permits=3, weight=3, blocking_timeout=0.5))
        assert 0.5 <= sim().time() - began < 0.7
        await cycle(w.manager.fair_semaphore("gpu", permits=3, weight=2, blocking=False))
        await held.release()


def test_the_limit_goes_by_the_clock_of_the_loop_in_which_it_is_called() -> None:
    """A manager that was used in another loop before, as by two tests, whose clock stood elsewhere."""
    nodes = [MemoryNode()]
    manager = LockManager(nodes)

    async def wait(seconds: float) -> None:
        async with LockManager(nodes) as other, other.semaphore("gpu", permits=1):
            began = sim().time()
            with pytest.raises(LockTakenError):
                await cycle(manager.fair_semaphore("gpu", permits=1, blocking_timeout=0.5))
            assert sim().time() - began < 0.7
            await asyncio.sleep(seconds)

    for seconds in (100.0, 0.0):
        SimLoop.run(wait(seconds))


async def test_the_door_stays_open_to_one_call_however_long_it_waits() -> None:
    """The extensions of a lease are limited, those of the door are not."""
    async with world() as w, w.process(ttl=1.0, extension=ExtensionPolicy(max_extensions=2)) as other:
        held = await w.manager.semaphore("gpu", permits=1).acquire()
        waiting = asyncio.create_task(cycle(other.fair_semaphore("gpu", permits=1)))
        await asyncio.sleep(30.0)
        await held.release()
        await waiting


async def test_the_loss_of_any_permit_ends_the_block() -> None:
    """Also of the first one, inside of whose block is that of another one."""
    async with world() as w:
        block = w.manager.fair_semaphore("gpu", permits=2, weight=2)
        leases = await block.__aenter__()
        for node in w.nodes:
            node._server.remove(KEY, Hash, b"%d" % leases[0].slot)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(TTL)
        with pytest.raises(LockLostError):
            await block.__aexit__(asyncio.CancelledError, asyncio.CancelledError("the lock was lost"), None)
        await cycle(w.manager.fair_semaphore("gpu", permits=2, weight=2, blocking=False))


async def test_a_block_inside_of_another_does_not_wait_for_it() -> None:
    """All permits would be the task's own."""
    async with world() as w, w.manager.fair_semaphore("gpu", permits=3, weight=2):
        with pytest.raises(WouldDeadlockError):
            await cycle(w.manager.fair_semaphore("gpu", permits=3, weight=2))


@pytest.mark.parametrize(("weight", "error"), [(0, ValueError), (4, ValueError), (True, TypeError)])
async def test_a_wrong_weight_is_refused_at_the_call(weight: int, error: type[Exception]) -> None:
    """It could never be had."""
    async with world() as w:
        with pytest.raises(error, match=f"weight must be .*got {weight}"):
            w.manager.fair_semaphore("gpu", permits=3, weight=weight)
