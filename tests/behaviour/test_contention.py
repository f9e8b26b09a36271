"""One name that several processes want: each gets its share, and waiters are told (rule R13)."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from typing import Final

import pytest

from aioredlock_ng import LockManager
from tests.behaviour.tools import PATIENCE, Worker, no_key_left, overlaps, quiet, shares_of, worker
from tests.servers import Nodes, ask, eventually

PROCESSES: Final = 4
TASKS: Final = 5
TURNS: Final = 60  # how often each process has the lock before all are told to end
WAITERS: Final = 3
PROMPTLY: Final = 20.0  # seconds in which several processes were told and had their turn; their polls: 30

faults = pytest.mark.parametrize("fault", ["none", "one node frozen"])


def listeners(nodes: Nodes, name: str) -> list[int]:
    """Return how many connections listen for releases of a name, on each server."""
    return [ask(url, "PUBSUB", "NUMSUB", f"redlock:{name}")[1] for url in nodes.urls]


async def all_had_it(workers: list[Worker], times: int) -> None:
    """Wait until each of the processes has had the lock so many times more."""
    for child in workers:
        for _ in range(times):
            await child.said("had it")


@pytest.mark.process
@faults
async def test_processes_share_a_hot_name(nodes5: Nodes, fault: str) -> None:
    """Four processes of five tasks that never pause exclude each other, and each has its share."""
    async with contextlib.AsyncExitStack() as stack:
        arguments = ("hurry", nodes5.urls, "hot", TASKS)
        workers = [await stack.enter_async_context(worker(*arguments)) for _ in range(PROCESSES)]
        for child in workers:
            await child.said("ready")
        for child in workers:
            child.go()
        await all_had_it(workers, TURNS // 4)
        if fault != "none":
            nodes5.pause(2)
        await all_had_it(workers, TURNS - TURNS // 4)
        for child in workers:
            child.go()  # home
        shares, changes = await shares_of(workers)
    nodes5.resume(2)
    numbers = list(map(len, shares))
    assert overlaps(itertools.chain(*shares)) == []
    assert min(numbers) >= 0.25 * sum(numbers) / PROCESSES, numbers
    assert changes >= 2 * PROCESSES, "each process had its share in one piece"
    # A release that a frozen server did not acknowledge ends with it: its keys live as long as the ttl.
    await no_key_left(nodes5.urls if fault == "none" else nodes5.urls[:2] + nodes5.urls[3:])
    await eventually(lambda: listeners(nodes5, "hot") == [0] * 5, what="no listener is left")


@pytest.mark.process
@faults
async def test_waiters_of_other_processes_are_told(nodes5: Nodes, fault: str) -> None:
    """Processes that wait for a release have the lock one after the other long before their next poll."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(quiet())
        manager = await stack.enter_async_context(LockManager(nodes5.urls))
        lease = await manager.lock("told").acquire()
        arguments = ("take", nodes5.urls, "told")
        workers = [await stack.enter_async_context(worker(*arguments)) for _ in range(WAITERS)]
        await eventually(
            lambda: listeners(nodes5, "told") == [WAITERS] * 5, within=PATIENCE, what="all of them listen"
        )
        for child in workers:
            await child.said("waits")
        if fault != "none":
            nodes5.pause(4)
        released = time.clock_gettime(time.CLOCK_MONOTONIC)
        await lease.release()
        times = [json.loads((await child.at_ease())[-1]) - released for child in workers]
        assert 0 < min(times) <= max(times) < PROMPTLY
        nodes5.resume(4)
        await eventually(lambda: listeners(nodes5, "told") == [0] * 5, what="no listener is left")
