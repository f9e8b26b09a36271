"""Bad nodes cost nothing while a majority is well, and little when they come back."""

from __future__ import annotations

import statistics
import time
from typing import Final

import pytest

from aioredlock_ng import LockManager
from tests.behaviour.tools import all_up, keys, measured, quiet, strike
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
