"""Tasks of one process that want a lock: their order, who listens for them, and bursts (R13, R15, R22)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aioredlock_ng import ConfigurationError, Lease, RetryPolicy
from aioredlock_ng.errors import LockTakenError, ManagerClosedError, QuorumUnavailableError
from aioredlock_ng.testing.memory_node import MemoryNode
from tests.unit.tasks import End, cancelled, cycle, in_task, sim, turns, within
from tests.unit.traces import Sent, sent
from tests.unit.worlds import ROUND_TRIP, TIMEOUT, TTL, World, conflict, each, heard, world

NO_POLL = RetryPolicy(base=0.01, cap=1000.0)
"""With it a call that is not notified waits for longer than the test."""

MANY = 150
"""More than the tries that are in flight at once."""


def wants(lock: Any) -> asyncio.Task[Lease]:
    """Have a task wait for a lock."""
    return asyncio.create_task(lock.acquire())


# -- readers and writers ---------------------------------------------------------------------------------


async def test_a_waiting_writer_is_not_overtaken():
    """A reader that comes behind a waiting writer waits, though other readers are in."""
    async with world() as w, within(1.0):
        lock = w.manager.rwlock("a")
        first = await lock.read().acquire()
        writer, late = wants(lock.write()), wants(lock.read())
        await asyncio.sleep(0.1)
        assert not writer.done()
        assert not late.done()
        await first.release()
        lease = await writer
        assert not late.done()
        await lease.release()
        await (await late).release()


async def test_a_writer_that_gives_up_lets_the_readers_behind_it_in():
    """They waited for the writer alone; the next writer keeps its place among them."""
    async with world() as w, within(2.0):
        lock = w.manager.rwlock("a")
        first = await lock.read().acquire()
        writer, reader, second, last = (
            wants(mode()) for mode in (lock.write, lock.read, lock.write, lock.read)
        )
        await asyncio.sleep(0.1)
        await cancelled(writer)
        await (await reader).release()
        assert not last.done()
        await first.release()
        lease = await second
        assert not last.done()
        await lease.release()
        await (await last).release()


async def test_readers_come_in_when_the_first_of_them_has_won():
    """One asks the nodes; the others ask together once it has the lock."""
    async with world() as w:
        lock = w.manager.rwlock("a")
        readers = [wants(lock.read()) for _ in range(4)]
        await asyncio.sleep(ROUND_TRIP * 1.5)
        assert [task.done() for task in readers] == [True, False, False, False]
        await asyncio.sleep(ROUND_TRIP)
        for task in readers:
            await task.result().release()


# -- who listens -----------------------------------------------------------------------------------------


async def test_a_process_listens_until_the_last_waiting_task_gives_up():
    """The task that holds the name needs no notice."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock("a").acquire()
        one, two = wants(other.lock("a")), wants(other.lock("a"))
        await asyncio.sleep(0.2)
        await lease.release()
        mine = await one
        assert heard(w, "a") == [1] * 3
        await cancelled(two)
        await asyncio.sleep(ROUND_TRIP)
        assert heard(w, "a") == [0] * 3
        await mine.release()


async def test_a_reader_that_leaves_does_not_end_listening_for_another_that_waits():
    """A writer of another process keeps new readers out; its release lets the waiting one in."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        first = await other.rwlock("a").read().acquire()
        writer = wants(w.manager.rwlock("a").write())
        await asyncio.sleep(0.1)
        second, third = (wants(other.rwlock("a").read()) for _ in range(2))
        await asyncio.sleep(0.1)
        await first.release()
        lease = await writer
        await asyncio.sleep(0.1)
        assert not second.done()
        assert heard(w, "a") == [1] * 3
        await lease.release()
        async with within(0.1):
            for task in (second, third):
                await (await task).release()


async def test_a_quiet_release_that_no_task_follows_keeps_no_place_and_is_announced():
    """The task that it was for is cancelled before it asks, more often than there are places."""
    async with world(1) as w, w.process(retry=NO_POLL) as other, within(60.0):
        for number in range(MANY):
            lease = await w.manager.lock("a").acquire()
            follower = wants(w.manager.lock("a", ttl=TTL / 2))  # of another ttl: the lock is not handed off
            elsewhere = wants(other.lock("a")) if number == 0 else None
            await asyncio.sleep(0.02 if elsewhere else 0)
            await turns(2)
            release = asyncio.create_task(lease.release())
            await turns(1)
            await cancelled(follower)
            await release
            if elsewhere:
                async with within(0.1):
                    await (await elsewhere).release()
        async with within(TIMEOUT):
            await cycle(w.manager.lock("b"))


# -- bursts ----------------------------------------------------------------------------------------------

QUEUE = "aioredlock_ng._lock.local_queue"
PLACES = 4
"""Places for tries in flight, where a test says so: few make a burst small."""


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few tries be in flight at once."""
    monkeypatch.setattr(f"{QUEUE}.MAX_TRIES", PLACES)
    monkeypatch.setattr(f"{QUEUE}.MAX_QUIET", PLACES)


@contextlib.asynccontextmanager
async def deserted(**options: float) -> AsyncIterator[World]:
    """Open a world; at the end there is a place for each of as many new calls as there are places."""
    async with world(**options) as w:
        yield w
        began = sim().time()
        await succeed(ends(w, *(f"after {number}" for number in range(PLACES)), blocking_timeout=5.0))
        assert sim().time() - began < 2.5 * ROUND_TRIP


def asked(node: MemoryNode) -> list[str]:
    """Return the names that a node was asked for, in order."""
    return [one.key.decode().partition(":")[2] for one in sent(node) if one.kind == "acquire"]


def ends(w: World, *names: str, **options: float) -> list[asyncio.Task[End]]:
    """Ask for some names at once, each in a task of its own."""
    return [in_task(w.manager.lock(name, **options).acquire) for name in names]


def burst(w: World, number: int = PLACES, **options: float) -> list[asyncio.Task[End]]:
    """Ask for a number of names at once."""
    return ends(w, *map(str, range(number)), **options)


async def succeed(tasks: list[asyncio.Task[End]]) -> None:
    """See that all of these have their lock in the end."""
    assert [end.error for end in await asyncio.gather(*tasks)] == [None] * len(tasks)


@contextlib.asynccontextmanager
async def full(w: World) -> AsyncIterator[None]:
    """Have every place taken when the block begins; those that took them have their locks in the end."""
    tasks = burst(w)
    await turns(1)
    yield
    await succeed(tasks)


@contextlib.contextmanager
def frozen(w: World) -> Iterator[None]:
    """Have no node answer meanwhile."""
    each(w.nodes).freeze()
    yield
    each(w.nodes).thaw()


# -- a burst -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later", "ahead"), [(1, 0), (2, 128)], ids=["turn", "next turn"])
async def test_an_extension_leaves_ahead_of_those_that_stand_in_line(later, ahead):
    """However many have asked, no more than the window's tries are before it; none of this turn's."""
    async with world() as w:
        lease = await w.manager.lock("held").acquire()
        tasks = burst(w, 500)
        await turns(later)
        await lease.extend()
        before = [one.kind for one in sent(w.nodes[0])]
        assert before[: before.index("extend")].count("acquire") == 1 + ahead
        await succeed(tasks)
        await lease.release()


@pytest.mark.parametrize("what", ["held", "had", "stays"])
async def test_a_call_that_asks_no_node_for_now_takes_no_place(few_places, what):
    """It stood in line before it found that its process holds the name, or has had its turn, or that the
    name stays taken: it waits for that without a place.
    """
    async with deserted() as w:
        lease = await w.manager.lock("held").acquire()
        async with w.manager.lock("had"):
            await asyncio.sleep(0.06)
        await cycle(w.manager.lock("stays", at_least=TIMEOUT))
        async with full(w):
            tasks = ends(w, *[what] * PLACES)
            await asyncio.sleep(ROUND_TRIP + 0.0005)
            assert asked(w.nodes[0]) == ["held", "had", "stays", "0", "1", "2", "3"]
            assert not any(task.done() for task in tasks)
            async with within(2.5 * ROUND_TRIP):
                await succeed(ends(w, "4", "5", "6", "7"))
            await lease.release()
            await succeed(tasks)


async def test_a_call_that_comes_first_when_no_lock_can_be_trusted_gives_its_place_back(few_places):
    """Its nodes turned out to be no quorum while it stood in line: it asks none."""
    async with deserted() as w, full(w):
        (late,) = ends(w, "late")
        await turns(1)
        sim().call_later(ROUND_TRIP / 2, conflict, w.manager)
        assert isinstance((await late).error, ConfigurationError)
        conflict(w.manager, None)
        await asyncio.sleep(TIMEOUT)
        assert asked(w.nodes[0]).count("late") == 0


async def test_a_single_try_of_what_its_process_holds_does_not_stand_in_line(few_places):
    """No node is asked for it, so that it needs no place for its answer."""
    async with deserted() as w:
        lease = await w.manager.lock("held").acquire()
        async with full(w):
            (told,) = ends(w, "held", blocking_timeout=0)
            await turns(3)
            assert told.done()
            assert isinstance((await told).error, LockTakenError)
        await lease.release()


# -- the time of those in line -------------------------------------------------------------------------


async def test_the_time_in_line_is_the_callers(few_places):
    """A call whose time ends in line fails then, and nothing was sent for it."""
    async with deserted() as w:
        with frozen(w):
            before = burst(w, blocking_timeout=1.0)
            (late,) = ends(w, "late", blocking_timeout=0.03)
            end = await late
            assert isinstance(end.error, QuorumUnavailableError)
            assert "not attempted" in str(end.error)
            assert {vote.vote.value for vote in end.error.votes} == {"silent"}
            assert end.at == pytest.approx(1000.03, abs=0.01)
            assert "late" not in asked(w.nodes[0])
        await succeed(before)


async def test_a_refusal_is_told_again_when_the_time_runs_out_in_line(few_places):
    """The second try found no place in time: the answer to the first one is what is known."""
    async with deserted() as w:
        w.occupy("taken", 60.0)
        (call,) = ends(w, "taken", blocking_timeout=0.2)
        await asyncio.sleep(0.05)
        with frozen(w):
            tasks = burst(w, 40, blocking_timeout=5.0)
            assert isinstance((await call).error, LockTakenError)
        await succeed(tasks)


async def test_a_single_try_does_not_stand_behind_those_that_can_wait(few_places):
    """Of two places one is for a single try, so that it waits only for others like it."""
    async with world() as w:
        calls = burst(w, 30)
        await turns(2)
        singles = [in_task(w.manager.lock(f"s{number}").try_acquire) for number in range(5)]
        await succeed(calls + singles)
        order = asked(w.nodes[0])[PLACES : PLACES + 10]
        assert order == ["s0", "4", "s1", "5", "s2", "6", "s3", "7", "s4", "8"]


@pytest.mark.parametrize("latency", [TIMEOUT / 5, TIMEOUT * 0.45])
async def test_a_single_try_is_heard_out_though_it_stood_in_line(few_places, latency):
    """The time that it waited for its place is not taken from the time that nodes have to answer."""
    async with world(latency=latency) as w:
        await succeed(burst(w, 5 * PLACES, blocking_timeout=0))


async def test_single_tries_are_sent_away_when_nodes_do_not_answer(few_places):
    """They do not wait for one try after the other to end in silence."""
    async with deserted() as w:
        with frozen(w):
            began = sim().time()
            tasks = burst(w, 30, blocking_timeout=0)
            waiting = ends(w, "patient", blocking_timeout=5.0)
            for end in await asyncio.gather(*tasks):
                assert isinstance(end.error, QuorumUnavailableError)
                assert end.at - began <= 2 * TIMEOUT + ROUND_TRIP
        await succeed(waiting)


async def test_the_line_is_bounded(few_places, monkeypatch):
    """Beyond its bound a call fails at once: there are too many."""
    monkeypatch.setattr(f"{QUEUE}.MAX_IN_LINE", 10)
    async with world() as w:
        tasks = burst(w, PLACES + 15)
        await succeed(tasks[: PLACES + 10])
        assert {type((await task).error) for task in tasks[PLACES + 10 :]} == {QuorumUnavailableError}


# -- leaving the line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_a_place_is_never_lost(few_places, seed):
    """Calls are cancelled, or run out of time, at any moment, also at that when a place comes."""
    chance = random.Random(seed)
    async with deserted() as w:
        tasks = []
        for number in range(80):
            timeout = chance.choice([None, 0, 0.002, 0.004, 0.01])
            lock = w.manager.lock(f"{chance.randrange(60)}", blocking_timeout=timeout)
            tasks.append(in_task(lock.acquire if number % 2 else lock.try_acquire))
        for _ in range(30):
            await asyncio.sleep(chance.choice([0.0, 0.0, ROUND_TRIP / 2, ROUND_TRIP]))
            chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # some were cancelled before they began
        await asyncio.sleep(0.1)
        assert w.keys == [()] * 3


@pytest.mark.parametrize("timeout", [0, 5.0], ids=["single try", "patient"])
async def test_a_place_that_comes_to_a_cancelled_call_goes_to_the_next(few_places, timeout):
    """It leaves the line in the moment in which its turn comes."""
    for turn in range(8):
        async with deserted() as w, full(w):
            standing = asyncio.create_task(cycle(w.manager.lock("x", blocking_timeout=timeout)))
            await asyncio.sleep(ROUND_TRIP)
            await turns(turn)
            await cancelled(standing)


async def test_closing_ends_the_wait_in_line(few_places):
    """Calls in line hear that the manager is closed."""
    async with world() as w:
        with frozen(w):
            tasks = burst(w, 3 * PLACES)
            await turns(3)
            await w.manager.aclose()
            assert {type(end.error) for end in await asyncio.gather(*tasks)} == {ManagerClosedError}


# -- hand-off ------------------------------------------------------------------------------------------


def of_the_hot_name(w: World) -> list[Sent]:
    """Return the acquires and releases of the hot name, in their order."""
    return [one for one in sent(w.nodes[0]) if one.key == b"redlock:hot"]


@pytest.mark.parametrize("quiet", [True, False])
async def test_a_task_behind_a_release_asks_past_the_line(few_places, monkeypatch, quiet):
    """In one write, and others hear of none; where too many do, it stands in line, and others hear."""
    if not quiet:
        monkeypatch.setattr(f"{QUEUE}.MAX_QUIET", 0)
    async with deserted() as w:
        first = await w.manager.lock("hot").acquire()
        wanted = [asyncio.create_task(cycle(w.manager.lock("hot"))) for _ in range(6)]
        await turns(3)
        others = burst(w, 40)
        await turns(2)
        began = sim().time()
        await first.release()
        release = [one for one in of_the_hot_name(w) if one.kind == "release"]
        assert release[0].words[-2] == (b"" if quiet else b"1")
        if quiet:
            pairs = itertools.pairwise(one.kind for one in of_the_hot_name(w))
            assert ("release", "acquire") in pairs
            assert sim().time() - began <= 2 * ROUND_TRIP
        await asyncio.gather(*wanted)
        await succeed(others)
