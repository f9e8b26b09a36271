"""Bad nodes cost nothing while a majority is well, and little when they come back."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest

from aioredlock_ng import LockManager, NodeState, QuorumUnavailableError
from aioredlock_ng.testing._fresh import initialise
from tests.behaviour.tools import (
    ALLOWANCE,
    PATIENCE,
    all_up,
    cycle_times,
    keys,
    measured,
    median,
    no_key_left,
    quiet,
)
from tests.servers import Nodes, eventually

COST: Final = 1.5  # how much slower than with five healthy nodes a cycle may be, by the median

# The same for the rate of many tasks, which a busy machine disturbs more; waiting would cost tenfold.
RATE_COST: Final = 2.0

TASKS: Final = 100


async def heal(manager: LockManager, nodes: Nodes) -> None:
    """Bring every node back, and wait until the manager has noticed."""
    for i in range(5):
        nodes.resume(i)
    nodes.start()
    await all_up(manager)


@pytest.mark.heavy
@pytest.mark.parametrize("explicit", [False, True], ids=["async with", "acquire and release"])
@pytest.mark.parametrize("fault", ["frozen", "dead"])
async def test_one_bad_node_of_five(nodes5: Nodes, fault: str, explicit: bool) -> None:
    """One frozen or dead node of five leaves an uncontended cycle within 1.5 times its usual time.

    A block need not wait for the bad node even before that is known to be bad, so it is measured over
    many short moments after the fault; the report of `release()` does, so it is measured over longer ones.
    """
    faults, cycles = (2, 200) if explicit else (8, 8)
    async with quiet(), LockManager(nodes5.urls) as manager:

        async def ratio() -> float:
            healthy: list[float] = []
            hurt: list[float] = []
            for number in range(faults):  # in turn, so that a busy moment of the machine hits both
                bad = number % 5
                healthy += await cycle_times(manager, cycles, explicit=explicit)
                if fault == "frozen":
                    nodes5.pause(bad)
                else:
                    nodes5.kill(bad)
                hurt += await cycle_times(manager, cycles, explicit=explicit)
                await heal(manager, nodes5)
            return median(hurt) / median(healthy)

        await measured(ratio, at_most=COST, what=f"cycle with one {fault} node over a healthy one")
    assert keys(nodes5.urls) == {}


@pytest.mark.heavy
@pytest.mark.timeout(90)
async def test_one_frozen_and_one_dead_node_of_five(nodes5: Nodes) -> None:
    """With one node frozen and one dead a hundred tasks go on at the rate of five healthy nodes."""
    async with quiet(), LockManager(nodes5.urls) as manager:

        async def cycles_per_second(seconds: float) -> float:
            began = time.monotonic()
            end = began + seconds

            async def work(number: int) -> int:
                lock = manager.lock(f"own:{number}")
                done = 0
                while time.monotonic() < end:
                    async with lock:
                        done += 1
                return done

            counts = await asyncio.gather(*(work(number) for number in range(TASKS)))
            assert min(counts) > 0, "a task made no progress at all"
            return sum(counts) / (time.monotonic() - began)

        async def slowdown() -> float:
            healthy, hurt = [], []
            for frozen, dead in ((0, 1), (3, 2)):
                healthy.append(await cycles_per_second(0.5))
                nodes5.pause(frozen)
                nodes5.kill(dead)
                hurt.append(await cycles_per_second(0.5))  # they are still being asked
                hurt.append(await cycles_per_second(1.0))
                await heal(manager, nodes5)
                healthy.append(await cycles_per_second(0.5))
            print(f"cycles per second: healthy {healthy}, hurt {hurt}")
            return median(healthy) / median(hurt)

        await measured(slowdown, at_most=RATE_COST, what="healthy rate over the rate with two bad nodes")
        await no_key_left(nodes5.urls, within=PATIENCE)


@pytest.mark.heavy
@pytest.mark.timeout(60)
async def test_frozen_for_longer_than_a_connection_is_kept(nodes5: Nodes) -> None:
    """A node that stays frozen until its connection is given up holds no key when it goes on."""
    async with quiet(), LockManager(nodes5.urls) as manager:
        nodes5.pause(0)
        began = time.monotonic()

        def frozen() -> NodeState:
            return manager.statistics().nodes[0].state

        number = 0
        while frozen() is not NodeState.DOWN:
            number += 1
            async with manager.lock(f"own:{number}", ttl=60):
                await asyncio.sleep(0.001)
            assert time.monotonic() - began < PATIENCE, "a frozen node is never given up"
        nodes5.resume(0)
        await all_up(manager)
        await no_key_left(nodes5.urls)
        async with manager.lock("all five") as lease:
            await eventually(lambda: len(keys(nodes5.urls)) == 5, what=f"all five take part: {lease!r}")


@pytest.mark.heavy
@pytest.mark.parametrize(("fault", "down_for"), [("dead", 1.5), ("frozen", 0.5), ("frozen", 3.0)])
async def test_two_bad_nodes_of_three(nodes3: Nodes, fault: str, down_for: float) -> None:
    """Without a quorum an acquire fails in time; a second after the nodes' return everything works again."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        lock = manager.lock("quorum", blocking_timeout=0.3)
        struck = time.monotonic()
        for i in range(2):
            if fault == "frozen":
                nodes3.pause(i)
            else:
                nodes3.kill(i)
        waiter = asyncio.create_task(manager.lock("waited for").acquire())
        while time.monotonic() - struck < down_for:
            began = time.monotonic()
            with pytest.raises(QuorumUnavailableError):
                await lock.acquire()
            assert time.monotonic() - began <= 0.3 + 0.1 + ALLOWANCE
        assert not waiter.done()
        for i in range(2):
            nodes3.resume(i)
        nodes3.start()
        if fault == "dead":
            initialise(nodes3.urls)  # no lock was held, as the operator knows
        returned = time.monotonic()
        async with manager.lock("new", blocking_timeout=1.0):
            pass
        lease = await asyncio.wait_for(waiter, PATIENCE)
        await lease.release()
        await all_up(manager)
        assert time.monotonic() - returned <= 1.0 + ALLOWANCE
        async with lock:
            pass
    assert keys(nodes3.urls) == {}


async def test_starting_without_any_node(nodes3: Nodes) -> None:
    """A manager starts while no node is up, and works within a second of their coming."""
    for i in range(3):
        nodes3.kill(i)
    async with quiet(), LockManager(nodes3.urls) as manager:
        with pytest.raises(QuorumUnavailableError):
            await manager.lock("early").try_acquire()
        nodes3.start()
        initialise(nodes3.urls)
        async with manager.lock("early", blocking_timeout=1.0) as lease:
            lease.check()
