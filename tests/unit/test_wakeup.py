"""Waiters in other processes: release notices and polls (R13), crowds (R33, R24), foreign holders (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioredlock_ng import Lease, LockManager, RetryPolicy
from aioredlock_ng._core.slots import ANY
from aioredlock_ng._lock.notifications import ReleaseListener, _read
from aioredlock_ng.testing import MemoryNode
from tests.unit.crowds import SECTION, crowd
from tests.unit.tasks import End, cancelled, in_task, sim
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import ANOTHER, LATENCY, PLAIN, ROUND_TRIP, STRANGER, World, each, opened, world

NAME = "a"
CHANNEL = PREFIX + NAME.encode()

NO_POLL = RetryPolicy(base=0.01, cap=1000.0)
"""With it nothing but a notice explains a win within the time of a test."""

CAP = RetryPolicy().cap

A_FEW = 3.0
"""Round trips from a release to the win of the waiter: the notice, a part of one for jitter, the win."""


def heard(w: World, name: str = NAME) -> list[int]:
    """Return how many listen for releases of a name on each node."""
    replies = [node.execute([b"PUBSUB", b"NUMSUB", PREFIX + name.encode()]) for node in w.nodes]
    return [int(reply.rsplit(b":", 1)[1]) for reply in replies]


def forge(*nodes: MemoryNode, message: bytes = b"") -> None:
    """Publish on the channel of the lock, as any client may."""
    each(nodes).execute([b"PUBLISH", CHANNEL, message])


@contextlib.asynccontextmanager
async def waiting(w: World, **options: object) -> AsyncIterator[asyncio.Task[End]]:
    """Let a waiter wait for the lock in a process of its own; give up at the end if it has not got it."""
    async with w.process(**{"retry": NO_POLL, **options}) as other:
        task = in_task(other.lock(NAME).acquire)
        await asyncio.sleep(1.0)
        assert not task.done()
        yield task
        await cancelled(task)


async def lets_in(lease: Lease, waiter: asyncio.Task[End], within: float = A_FEW * ROUND_TRIP) -> None:
    """Release a lock, and see that the waiter has it in time."""
    released = sim().time()
    release = asyncio.create_task(lease.release())
    end = await waiter
    assert end.error is None
    assert end.at - released <= within
    await release


# -- heard -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["frozen", "dead", "free all along"])
async def test_a_majority_of_notices_is_enough(fault):
    """A node that tells nothing delays no waiter; one that was free, and had granted it, need not tell."""
    async with world(5 if fault == "free all along" else 3) as w:
        lease = await w.manager.lock(NAME, extension=PLAIN).acquire()
        mute = w.nodes[1:2]
        if fault == "free all along":
            w.vacate(NAME, 3, 4)
            mute = w.nodes[:2]
        async with waiting(w) as waiter:
            for node in mute:
                node.crash() if fault == "dead" else node.freeze()
            await lets_in(lease, waiter)
            each(mute).thaw()


async def test_a_minority_of_notices_wakes_no_waiter():
    """A notice from a single node of three makes no waiter ask."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w):
            before = count(w.nodes[0], "acquire")
            for _ in range(10):
                forge(w.nodes[2])
                await asyncio.sleep(0.1)
            assert count(w.nodes[0], "acquire") == before
            await lease.release()


@pytest.mark.heavy
@pytest.mark.parametrize("after", [step / 4 for step in range(25)])
async def test_a_release_between_refusal_and_subscription_is_not_missed(after):
    """A release at any moment of a waiter's first try, by quarters of a way, is as good as heard."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await other.lock(NAME).acquire()
        waiter = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(after * LATENCY)
        await lets_in(lease, waiter, (2 + A_FEW) * ROUND_TRIP)  # with the first try and its undo


async def test_a_lock_over_several_names_tells_of_each_and_listens_to_each():
    """It gets in when the last one is free, and its release wakes a waiter for one of them."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        first, second = await w.manager.lock("b").acquire(), await w.manager.lock("c").acquire()
        waiter = in_task(other.lock("c", NAME, "b").acquire)
        await asyncio.sleep(1)
        assert [heard(w, name) for name in "abc"] == [[1] * 3] * 3
        await first.release()
        await asyncio.sleep(1)
        assert not waiter.done()
        await lets_in(second, waiter)
        assert [heard(w, name) for name in "abc"] == [[0] * 3] * 3
        lease = await w.manager.lock("0", NAME, "z").acquire()
        async with waiting(w) as waiter:
            await lets_in(lease, waiter)


# -- not heard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connections", "messages"])
@pytest.mark.parametrize("seed", range(1, 6))
async def test_a_lost_notice_costs_at_most_a_poll(how, seed, monkeypatch):
    """Connections that break at the release, and messages that go nowhere, delay a waiter by one wait."""
    async with world(seed=seed) as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=RetryPolicy()) as waiter:
            if how == "connections":
                each(w.nodes).disconnect()
            else:
                monkeypatch.setattr("aioredlock_ng.testing._memory_server.MemoryServer.publish", lambda *_: 0)
            # Connections are up again after 0.05 s; recorded releases leave then.
            await lets_in(lease, waiter, CAP + 0.05 + 4 * ROUND_TRIP)


# -- hints, not votes --------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.timeout(60)
async def test_a_flood_of_forged_notices_is_bounded():
    """However many are published, and however long, a waiter asks at most once in two round trips."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=RetryPolicy()) as waiter:
            before, began = count(w.nodes[0], "acquire"), sim().time()
            while sim().time() < began + 5:  # for more than a thousand tries
                forge(*w.nodes)
                await asyncio.sleep(LATENCY / 2)
            assert not waiter.done(), waiter
            tries = count(w.nodes[0], "acquire") - before
            assert tries <= 5 / (2 * ROUND_TRIP) + 1
            await lets_in(lease, waiter, (2 + A_FEW) * ROUND_TRIP)


# -- an ear, notice by notice ------------------------------------------------------------------------


async def test_what_comes_late_of_a_release_that_was_let_pass_is_not_the_next_one() -> None:
    """A majority is one release, and what others tell belongs to it; asking the nodes ends that (R33)."""
    ear = ReleaseListener(5)
    for node in (0, 1, 2):
        assert not ear.enough().done()
        ear.hear(node, 50)
    assert ear.enough().done()
    ear.pass_by()
    for node in (3, 4, 0, 1):
        ear.hear(node, 50)
        assert not ear.enough().done()
    ear.hear(4, 50)
    assert ear.enough().done()
    ear.pass_by()
    ear.clear()
    for node in (2, 3, 0):
        ear.hear(node, 50)
    assert ear.enough().done()


@pytest.mark.parametrize(
    ("message", "crowd", "slot"),
    [
        *((message, 0, ANY) for message in (b"1000000", b"", b"-1", b"7 ", "7", 7, b":")),
        *((b"%d" % number, number, ANY) for number in (1, 999_999)),
        *((message, 7, ANY) for message in (b"7:256", b"7:", b"7:x")),
        (b"7:3", 7, 3),
        (b":255", 0, 255),
    ],
    ids=repr,
)
def test_what_a_notice_says_is_read_with_care(message, crowd, slot):
    """Any client may publish: only a number of up to six digits (R33), and a possible slot (R24), say it."""
    assert _read(message) == (crowd, slot)


# -- only waiters listen ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["won", "timed out", "cancelled", "closed", "failed"])
async def test_no_process_listens_without_a_waiter(how):
    """However the last waiter of a process ends: its subscriptions end with it, and not before."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await w.manager.lock(NAME).acquire()
        patience = 2.0 if how == "timed out" else None
        tasks = [in_task(other.lock(NAME, blocking_timeout=patience).acquire) for _ in range(3)]
        await asyncio.sleep(1)
        assert heard(w) == [1] * 3
        assert (other.statistics().waiting, w.manager.statistics().waiting) == (3, 0)
        if how == "won":
            await lease.release()
        elif how == "cancelled":
            for task in tasks[:2]:
                task.cancel()
            await asyncio.sleep(0.1)
            assert heard(w) == [1] * 3, "a task still waits"
            tasks[2].cancel()
        elif how == "closed":
            await other.aclose()
        elif how == "failed":
            for node in w.nodes:
                node.set(CHANNEL, None)  # something that is no lock: no use in waiting for it
            forge(*w.nodes)
        ends = await asyncio.gather(*tasks)
        assert all((end.error is None) == (how == "won") for end in ends)
        await asyncio.sleep(ROUND_TRIP)
        assert heard(w) == [0] * 3
        assert other.statistics().waiting == 0
        each(w.nodes).delete(CHANNEL)
        await lease.release()


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
        assert min(figures.wins) > (sum(figures.wins) / 3 if processes == 2 else 0)


# -- one after the other goes home -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def gathered(
    processes: int, *, latency: float = LATENCY, seed: int = 0
) -> AsyncIterator[tuple[World, list[LockManager]]]:
    """Open a number of processes over three nodes."""
    async with world(3, latency=latency) as w, contextlib.AsyncExitStack() as stack:
        opening = (opened(w.nodes, seed=1000 * seed + number) for number in range(processes))
        yield w, [await stack.enter_async_context(manager) for manager in opening]


@pytest.mark.parametrize("seed", [1, 2, 3])
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


# -- without notices --------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("value", "ttl"),
    [(ANOTHER, 1000.0), (STRANGER, 1000.0), (STRANGER, None)],
    ids=["ours", "foreign", "foreign, for ever"],
)
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
    await cancelled(*tasks)


# -- what others say ---------------------------------------------------------------------------------


POLL = 0.02
"""Seconds that other libraries wait between two tries, at most."""


async def stranger(nodes: list[MemoryNode], wins: list[int], number: int, draw: random.Random) -> None:
    """Lock, work and release again and again, as other libraries do: by polls of 0 to 20 ms."""
    key = PREFIX + NAME.encode()
    for value in itertools.count():
        while any(node.get(key) is not None for node in nodes):
            await asyncio.sleep(draw.uniform(0, POLL))
        each(nodes).set(key, b"%032x" % value, 10.0)
        await asyncio.sleep(SECTION)
        each(nodes).delete(key)
        wins[number] += 1
        await asyncio.sleep(draw.uniform(0.0005, 0.002))


async def one_of_ours(manager: LockManager, wins: list[int], number: int, draw: random.Random) -> None:
    """Do the same by this package."""
    while True:
        async with manager.lock(NAME):
            await asyncio.sleep(SECTION)
            wins[number] += 1
        await asyncio.sleep(draw.uniform(0.0005, 0.002))


@pytest.mark.parametrize(
    ("ours", "strangers", "size"), [(1, 1, 1), (1, 3, 3), pytest.param(2, 2, 3, marks=pytest.mark.heavy)]
)
async def test_ours_get_half_of_a_fair_share_and_leave_enough(ours: int, strangers: int, size: int) -> None:
    """One of ours, which got a tenth; several tell each other, and leave the stranger less."""
    draw = random.Random(7)
    wins = [0] * (ours + strangers)
    async with world(size, latency=0.00025) as w, w.process() as other:
        managers = (w.manager, other)[:ours]
        jobs = [one_of_ours(one, wins, number, draw) for number, one in enumerate(managers)]
        jobs += [stranger(w.nodes, wins, ours + number, draw) for number in range(strangers)]
        tasks = [asyncio.create_task(job) for job in jobs]
        await asyncio.sleep(5.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    fair = sum(wins) / len(wins)
    assert min(wins[:ours]) >= fair / 2, wins
    assert min(wins[ours:]) >= fair / (2 if ours == 1 else 4), wins


async def test_a_foreign_holder_is_polled_from_the_first_refusal() -> None:
    """As `RetryPolicy` says: from 10 ms on, doubled up to half a second, and not more often for that."""
    async with world() as w:
        w.occupy(NAME, 1000.0)
        began = sim().time()
        task = in_task(w.manager.lock(NAME, blocking_timeout=30.0).acquire)
        await asyncio.sleep(0.1)
        assert count(w.nodes[0], "acquire") >= 4
        await asyncio.sleep(5.0)
        before = count(w.nodes[0], "acquire")
        await task
        assert sim().time() - began >= 30.0
        assert 25 / 0.5 <= count(w.nodes[0], "acquire") - before <= 25 / 0.15


async def test_a_minority_of_foreign_keys_is_not_polled() -> None:
    """The release of the others brings a notice."""
    async with world() as w:
        w.occupy(NAME, 1000.0, value=ANOTHER)
        w.occupy(NAME, 1000.0, 1)
        task = in_task(w.manager.lock(NAME, blocking_timeout=5.0).acquire)
        await task
        assert count(w.nodes[0], "acquire") <= 1 + 5 / 0.25 + 1
