"""Crowds: what a hot name costs does not grow with the number of processes that want it (R33, R24)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioredlock_ng import Lease, LockManager, LockTakenError, RetryPolicy
from tests.unit.crowds import NAME, SECTION, crowd
from tests.unit.worlds import (
    ANOTHER,
    LATENCY,
    PREFIX,
    STRANGER,
    World,
    count,
    in_task,
    opened,
    sim,
    virtual,
    world,
)


@pytest.mark.parametrize(
    ("processes", "seconds", "rate", "tries", "commands"),
    [
        pytest.param(2, 0.6, 155, 2.5, 40, id="2"),  # three or fewer follow every notice
        pytest.param(10, 0.6, 155, 8, 80, marks=pytest.mark.heavy, id="10"),  # without R33: 158, 15, 156
        pytest.param(30, 0.3, 145, 8, 80, marks=pytest.mark.heavy, id="30"),  # without: 142, -, 680
        pytest.param(100, 0.5, 120, 15, 120, marks=pytest.mark.heavy, id="100"),  # without: 57, -, 7,668
        # What is left to grow are the notices.
        pytest.param(300, 0.2, 100, 15, 120, marks=[pytest.mark.heavy, pytest.mark.timeout(600)], id="300"),
    ],
)
def test_what_a_hand_off_costs(
    processes: int, seconds: float, rate: float, tries: float, commands: float
) -> None:
    """Hand-offs in a second, and tries and commands for each; ten processes are no slower, and ask less."""
    figures = crowd(processes, seconds=seconds)
    assert figures.rate >= rate, str(figures)
    assert figures.tries_each <= tries, str(figures)
    assert figures.commands_each <= commands, str(figures)
    if processes <= 10:
        assert min(figures.wins) > (figures.hand_offs / 3 if processes == 2 else 0)


@pytest.mark.parametrize(
    ("processes", "seconds", "tries"),
    [
        pytest.param(9, 0.5, 1.2, marks=pytest.mark.heavy),
        pytest.param(20, 0.5, 3.2, marks=pytest.mark.heavy),
        pytest.param(50, 0.25, 6, marks=pytest.mark.campaign),
    ],
)
def test_a_permit_costs_a_few_tries(processes: int, seconds: float, tries: float) -> None:
    """Of ten permits: hardly more than one with one for each; more where there are fewer (R24)."""
    figures = crowd(processes, permits=10, seconds=seconds)
    assert figures.tries_each <= tries, figures
    assert figures.rate > 1000, figures
    assert min(figures.wins) > 0, figures


# -- one after the other goes home -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def gathered(
    processes: int, *, latency: float = LATENCY, seed: int = 0
) -> AsyncIterator[tuple[World, list[LockManager]]]:
    """Open so many processes over three nodes."""
    async with world(3, latency=latency) as w, contextlib.AsyncExitStack() as stack:
        opening = (opened(w.nodes, seed=1000 * seed + number) for number in range(processes))
        yield w, [await stack.enter_async_context(manager) for manager in opening]


@pytest.mark.parametrize("seed", [1, 2, 3])
@virtual
async def test_a_crowd_that_goes_home_is_not_waited_for(seed: int) -> None:
    """Each wants the lock once: notices tell the last of them that they are few, so that they follow."""
    async with gathered(15, latency=0.00025, seed=seed) as (w, managers):

        async def once(manager: LockManager) -> None:
            async with manager.lock(NAME):
                await asyncio.sleep(SECTION)

        lease = await w.manager.lock(NAME).acquire()
        tasks = [asyncio.create_task(once(manager)) for manager in managers]
        await asyncio.sleep(2.0)
        released = sim().time()
        await lease.release()
        await asyncio.gather(*tasks)
        assert sim().time() - released < 15 * SECTION * 2.2


# -- while nothing is told ---------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("value", "ttl"),
    [(ANOTHER, 1000.0), (STRANGER, 1000.0), (STRANGER, None)],
    ids=["ours", "foreign", "foreign, for ever"],
)
@virtual
async def test_a_crowd_reminds_itself_as_often_as_a_few_do(value: bytes, ttl: float | None) -> None:
    """Fifty to a hundred times a second while a lock is held for long; twice as often without R33."""
    async with gathered(60) as (w, managers):
        w.occupy(NAME, ttl, value=value)
        tasks = [in_task(manager.lock(NAME).acquire) for manager in managers]
        await asyncio.sleep(2.0)
        before = count(w.nodes[0], "acquire")
        await asyncio.sleep(4.0)
        assert 4 * 50 <= count(w.nodes[0], "acquire") - before <= 4 * 100
        await give_up(tasks)


@pytest.mark.heavy
@virtual
async def test_a_crowd_comes_apart_when_its_holder_dies() -> None:
    """All read the moment of expiry off the nodes; asking takes each a round trip."""
    async with gathered(40) as (w, managers):
        w.occupy(NAME, 5.0, value=ANOTHER)
        expiry = sim().time() + 5.0
        leases: list[Lease] = []

        async def take(manager: LockManager) -> None:
            leases.append(await manager.lock(NAME).acquire())

        tasks = [asyncio.create_task(take(manager)) for manager in managers]
        await asyncio.sleep(5.0 - 0.001)
        before = count(w.nodes[0], "acquire")
        await asyncio.sleep(0.02)
        assert len(leases) == 1
        assert count(w.nodes[0], "acquire") - before <= 20, "with a base of 10 ms that is half of them"
        assert sim().time() - expiry < 0.02
        await leases[0].release()
        await give_up(tasks)


async def give_up(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait no more."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# -- what others say ---------------------------------------------------------------------------------


def say(w: World, message: bytes) -> None:
    """Publish on the channel of the lock, as any client may."""
    for node in w.nodes:
        node.execute([b"PUBLISH", PREFIX + NAME.encode(), message])


@pytest.mark.parametrize("message", [b"999999", b"1" * 5000, b"-1", b"\xb2", b"1.5", b"0x10", b"\x00"])
@virtual
async def test_a_forged_number_costs_a_reminder(message: bytes) -> None:
    """A false number may keep a waiter from following; it asks after its wait all the same."""
    async with world() as w, w.process() as other:
        w.occupy(NAME, 1000.0, value=ANOTHER)
        task = in_task(other.lock(NAME).acquire)
        await asyncio.sleep(1.0)
        for _ in range(20):
            say(w, message)
            await asyncio.sleep(0.05)
        w.vacate(NAME)
        gone = sim().time()
        say(w, message)
        end = await task
        assert end.error is None
        assert end.at - gone <= RetryPolicy().cap + 6 * LATENCY


@virtual
async def test_the_time_is_up_in_a_crowd_too() -> None:
    """A waiter that lets notices pass asks once more when its time is up, and not later."""
    async with world() as w, w.process() as other:
        w.occupy(NAME, 1000.0, value=ANOTHER)
        began = sim().time()
        task = in_task(other.lock(NAME, blocking_timeout=0.2).acquire)
        while not task.done():
            await asyncio.sleep(0.011)
            say(w, b"10000")
        end = await task
        assert isinstance(end.error, LockTakenError)
        assert 0.2 <= end.at - began <= 0.2 + 4 * LATENCY
        assert count(w.nodes[0], "acquire") <= 4
