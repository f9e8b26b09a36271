"""Many processes that want one name without a pause, on virtual time: what a hand-off costs (R33)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Final, NamedTuple

from aioredlock_ng import LockManager
from aioredlock_ng.testing import SimLoop
from tests.simulation.wires import WiredNode
from tests.unit.traces import count
from tests.unit.worlds import make

NAME: Final = "hot"
SECTION: Final = 0.005
"""Seconds inside the lock."""
NODES: Final = 5
ARRIVE: Final = 0.1
"""Seconds within which all come; as much again is not counted."""


class Figures(NamedTuple):
    """Counts of a stretch of virtual time in which all contenders were there."""

    wins: tuple[int, ...]
    """The number of times each process had the lock."""
    rate: float
    """Hand-overs from one holder to the next, a second."""
    tries_each: float
    """Acquires that one node executed, per hand-off."""
    commands_each: float
    """Commands that all nodes executed, but for heartbeats, per hand-off."""


def crowd(
    processes: int,
    *,
    seconds: float = 2.0,
    seed: int = 1,
    permits: int = 0,
    fair: bool = False,
    dying: int = 0,
) -> Figures:
    """Have a number of processes want one lock again and again, and return what `seconds` of that cost.

    With `permits` it is a semaphore that they want; a `fair` lock is served in order.  The `dying` ones are
    cut off, one by one.
    """
    wanted = {"permits": permits} if permits else {"fair": fair}
    return SimLoop.run(_crowd(processes, seconds, random.Random(1), wanted, dying))


async def _crowd(
    processes: int, seconds: float, draw: random.Random, wanted: dict[str, Any], dying: int
) -> Figures:
    permits = wanted.get("permits", 0)
    nodes = [WiredNode(latency=lambda: 0.00015 + draw.expovariate(10_000)) for _ in range(NODES)]
    wins = [0] * processes
    inside: set[int] = set()

    async def work(number: int, manager: LockManager) -> None:
        await asyncio.sleep(draw.uniform(0, ARRIVE))
        while True:
            async with manager.semaphore(NAME, permits=permits) if permits else manager.lock(NAME, **wanted):
                assert len(inside) < max(1, permits), "too many holders"
                inside.add(number)
                await asyncio.sleep(SECTION)
                inside.discard(number)
            wins[number] += 1
            await asyncio.sleep(draw.uniform(0.0005, 0.002))

    async with contextlib.AsyncExitStack() as stack:
        tasks, wires = [], [[node.wire() for node in nodes] for _ in range(processes)]
        for number in range(processes):
            manager = await stack.enter_async_context(make(wires[number], seed=draw.getrandbits(32)))
            tasks.append(asyncio.create_task(work(number, manager)))
        await asyncio.sleep(2 * ARRIVE)
        wins[:] = [0] * processes
        for node in nodes:
            node.executed.clear()
        for number in range(dying):
            await asyncio.sleep(seconds / 2 / dying)
            while number in inside:  # a holder's death is another matter
                await asyncio.sleep(SECTION / 2)
            for wire in wires[number]:
                wire.cut()
        await asyncio.sleep(seconds if not dying else seconds / 2)
        commands = sum(len(node.executed) for node in nodes)
        kind = "slots-acquire" if permits else "fair-acquire" if wanted["fair"] else "acquire"
        total = sum(wins)
        tries = count(nodes[0], kind)
        figures = Figures(tuple(wins), total / seconds, tries / total, commands / total)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return figures
