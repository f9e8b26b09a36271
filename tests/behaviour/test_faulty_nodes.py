"""Bad nodes cost nothing while a majority is well, and little when they come back."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

import pytest

from aioredlock_ng import LockManager, QuorumUnavailableError
from aioredlock_ng.testing.local_nodes import initialise
from tests.behaviour.tools import ALLOWANCE, PATIENCE, all_up, keys, measured, quiet, strike
from tests.servers import Nodes

COST: Final = 1.5  # how much slower than with five healthy nodes a cycle may be, by the median


async def heal(manager: LockManager, nodes: Nodes) -> None:
    """Bring every node back, and wait until the manager has noticed."""
    for i in range(len(nodes.urls)):
        nodes.resume(i)
    nodes.start()
    await all_up(manager)


async def cycle_times(manager: LockManager, count: int, *, explicit: bool) -> list[float]:
    """Return the seconds of that number of acquires and releases, one after the other, without contention."""
    lock = manager.lock("uncontended")
    times = []
    for _ in range(count):
        began = time.perf_counter()
        if explicit:
            await (await lock.acquire()).release()
        else:
            async with lock:
                pass
        times.append(time.perf_counter() - began)
    return times


@pytest.mark.heavy
@pytest.mark.timeout(90)
@pytest.mark.parametrize("explicit", [False, True], ids=["async with", "acquire and release"])
@pytest.mark.parametrize("bad", [("frozen",), ("dead",), ("frozen", "dead")], ids=" and ".join)
async def test_bad_nodes_of_five_cost_no_time(nodes5: Nodes, bad: tuple[str, ...], explicit: bool) -> None:
    """One or two frozen or dead nodes of five leave an uncontended cycle within 1.5 times its usual time.

    A block need not wait for the bad node even before that is known to be bad, so it is measured over
    many short moments after the fault; the report of `release()` does, so it is measured over longer ones.
    """
    faults, cycles = (2, 200 * len(bad)) if explicit else (8, 8)
    async with quiet(), LockManager(nodes5.urls) as manager:

        async def ratio() -> float:
            healthy: list[float] = []
            hurt: list[float] = []
            for number in range(faults):  # in turn, so that a busy moment of the machine hits both
                healthy += await cycle_times(manager, cycles, explicit=explicit)
                for i, fault in enumerate(bad, number):
                    strike(nodes5, fault, i % 5)
                hurt += await cycle_times(manager, cycles, explicit=explicit)
                await heal(manager, nodes5)
            return statistics.median(hurt) / statistics.median(healthy)

        await measured(ratio, at_most=COST, what=f"cycle with {' and '.join(bad)} nodes over a healthy one")
    assert keys(nodes5.urls) == {}


@pytest.mark.heavy
@pytest.mark.parametrize(("fault", "down_for"), [("dead", 1.5), ("frozen", 0.5), ("frozen", 3.0)])
async def test_two_bad_nodes_of_three(nodes3: Nodes, fault: str, down_for: float) -> None:
    """Without a quorum an acquire fails in time; a second after the nodes' return everything works again."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        lock = manager.lock("quorum", blocking_timeout=0.3)
        struck = time.monotonic()
        strike(nodes3, fault, 0, 1)
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
        await (await asyncio.wait_for(waiter, PATIENCE)).release()
        await all_up(manager)
        assert time.monotonic() - returned <= 1.0 + ALLOWANCE
        async with lock:
            pass
    assert keys(nodes3.urls) == {}
