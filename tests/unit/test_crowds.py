"""Crowds: what a hot name costs does not grow with the number of processes that want it (R33)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioredlock_ng import Lease, LockManager, LockTakenError, RetryPolicy
from aioredlock_ng._acquire.notices import ReleaseWaiter
from aioredlock_ng.testing._memory_commands import COMMANDS
from aioredlock_ng.testing._memory_data import CommandError
from tests.unit.crowds import NAME, SECTION, Figures, crowd
from tests.unit.worlds import ANOTHER, LATENCY, PREFIX, World, count, in_task, opened, sim, virtual, world


def check(figures: Figures, *, rate: float, tries: float, commands: float) -> None:
    """Check what a hand-off costs."""
    assert figures.rate >= rate, str(figures)
    assert figures.tries_each <= tries, str(figures)
    assert figures.commands_each <= commands, str(figures)


@pytest.mark.heavy
def test_ten_processes_are_no_slower_and_ask_less() -> None:
    """Without R33 these were 158 hand-offs a second, 15 tries and 156 commands each."""
    figures = crowd(10, seconds=0.6)
    check(figures, rate=155, tries=8, commands=80)
    assert min(figures.wins) > 0


def test_two_processes_take_turns() -> None:
    """A crowd of three or fewer follows every notice."""
    figures = crowd(2, seconds=0.6)
    check(figures, rate=155, tries=2.5, commands=40)
    assert min(figures.wins) > figures.hand_offs / 3


@pytest.mark.heavy
def test_thirty_processes() -> None:
    """A hand-off costs them what it costs ten; without R33 these were 142 a second of 680 commands each."""
    check(crowd(30, seconds=0.3), rate=145, tries=8, commands=80)


@pytest.mark.heavy
def test_a_hundred_processes() -> None:
    """Without R33 these were 57 hand-offs a second of 7,668 commands each."""
    check(crowd(100, seconds=0.5), rate=120, tries=15, commands=120)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_three_hundred_processes() -> None:
    """What is left to grow are the notices."""
    check(crowd(300, seconds=0.2), rate=100, tries=15, commands=120)


@pytest.mark.heavy
@pytest.mark.parametrize("old", [5])
def test_clients_that_know_nothing_of_crowds_mix_with_those_that_do(old: int) -> None:
    """Both get in, and it goes on as quickly as among the former alone."""
    figures = crowd(10, seconds=1.0, old=old)
    assert figures.rate >= 120, str(figures)
    assert min(figures.wins) > 0, str(figures)


@pytest.mark.heavy
def test_without_the_right_to_count_all_is_as_without_crowds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd of unknown size follows every notice."""

    def denied(*_: object) -> None:
        raise CommandError("NOPERM User locker has no permissions to run the 'pubsub|numsub' command")

    monkeypatch.setitem(COMMANDS, b"PUBSUB", denied)
    figures = crowd(5, seconds=0.5)
    assert figures.rate >= 120, str(figures)
    assert figures.tries_each > 4, "all ask"
    assert min(figures.wins) > 0, str(figures)


# -- one after the other goes home -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def gathered(
    processes: int, *, latency: float = LATENCY, seed: int = 0
) -> AsyncIterator[tuple[World, list[LockManager]]]:
    """Open so many processes over three nodes."""
    async with world(3, latency=latency) as w, contextlib.AsyncExitStack() as stack:
        opening = (opened(w.nodes, seed=1000 * seed + number) for number in range(processes))
        yield w, [await stack.enter_async_context(manager) for manager in opening]


async def once(manager: LockManager, times: list[float]) -> None:
    """Have the lock for a short while, once."""
    async with manager.lock(NAME):
        await asyncio.sleep(SECTION)
        times.append(sim().time())


@pytest.mark.parametrize("seed", [1, 2, 3])
@virtual
async def test_a_crowd_that_goes_home_is_not_waited_for(seed: int) -> None:
    """Each wants the lock once: notices tell the last of them that they are few, so that they follow."""
    async with gathered(15, latency=0.00025, seed=seed) as (w, managers):
        lease = await w.manager.lock(NAME).acquire()
        times: list[float] = []
        tasks = [asyncio.create_task(once(manager, times)) for manager in managers]
        await asyncio.sleep(2.0)
        released = sim().time()
        await lease.release()
        await asyncio.gather(*tasks)
        assert max(times) - released < 15 * SECTION * 2.2


# -- while nothing is told ---------------------------------------------------------------------------


@pytest.mark.heavy
@virtual
async def test_a_crowd_reminds_itself_as_often_as_a_few_do() -> None:
    """Fifty to a hundred times a second while a lock is held for long; twice as often without R33."""
    async with gathered(60) as (w, managers):
        w.occupy(NAME, 1000.0, value=ANOTHER)
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


def test_what_comes_late_of_a_release_that_was_let_pass_is_not_the_next_one() -> None:
    """A majority of notices is one release; those of the others belong to it as well."""

    @virtual
    async def main() -> None:
        ear = ReleaseWaiter(5)
        for node in (0, 1, 2):
            assert not ear.enough().done()
            ear.told(node, 50)
        assert ear.enough().done()
        assert ear.crowd == 50
        ear.pass_by()
        for node in (3, 4, 0, 1):
            ear.told(node, 50)
            assert not ear.enough().done()
        ear.told(4, 50)
        assert ear.enough().done()

    main()
