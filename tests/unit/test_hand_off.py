"""A lock goes from task to task of a process: as it is, without a word to the nodes (R43), or by a quiet
release and the next acquire (R13, R15); and turns, by which a process lets others have the lock (R13).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Final

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    ReleaseOutcome,
    Vote,
)
from aioredlock_ng._core.fencing import MAX_BLOCK
from aioredlock_ng._lock import attempt, handoff
from aioredlock_ng._lock.handoff import WINDOW, YIELD
from aioredlock_ng._lock.session import Session
from aioredlock_ng._round.outbox import TickContext
from aioredlock_ng.events import Acquired, GaveUp, Lost, Released
from aioredlock_ng.testing import MemoryNode, lose
from tests.listening import Listener, listen_in_memory
from tests.unit.tasks import cancelled, cycle, in_task, sim, turns, until, virtual
from tests.unit.traces import PREFIX, Heard, count, counter, sent
from tests.unit.worlds import LATENCY, PLAIN, ROUND_TRIP, TTL, World, ago, each, opened, put, world

NAME: Final = "a"
SHORT: Final = 0.2
"""Seconds: a ttl of which much is over before a window is."""

BOTH: Final = pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])

NOTICE: Final = [b"message", PREFIX + NAME.encode(), b"1"]
"""Of a release: one listens (R33)."""

TTLS: Final = itertools.cycle([TTL + number for number in range(1, 40)])
"""No two locks in a row live for as long, so that none can be handed off as it is."""


class Begun:
    """A coroutine that has run up to its first pause."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._steps = coroutine.__await__()
        self._pause = next(self._steps)

    def __await__(self) -> Generator[Any, Any, None]:
        """Go on."""
        yield self._pause
        yield from self._steps


def commands(w: World) -> list[int]:
    """Return how many commands for locks each node has executed."""
    return [sum(one.kind in ("acquire", "extend", "release", "raise") for one in sent(n)) for n in w.nodes]


def stands(w: World) -> set[int | None]:
    """Return where the nodes' counters stand."""
    values = [node.get(counter(NAME)) for node in w.nodes]
    return {None if value is None else int(value) for value in values}


def blocks(w: World) -> list[int]:
    """Return how many fences each acquire has asked for."""
    acquires = [one for one in sent(w.nodes[0]) if one.kind == "acquire"]
    return [int(one.words[one.words.index(one.owner) + 3]) for one in acquires]


def owner(lease: Lease) -> bytes:
    """Return the value under the lease's keys: that of another lease, if it was handed off."""
    return lease._holding.owner


def fence_of(lease: Lease) -> int:
    """Return the lease's fence; 0 where the manager makes none."""
    return lease._holding.fence


def waits(w: World, *names: str, **options: Any) -> asyncio.Task[Lease]:
    """Have a task wait for the lock."""
    return asyncio.create_task(w.manager.lock(*names or (NAME,), **options).acquire())


async def holder(w: World, **options: Any) -> Lease:
    """Take the lock as a task that another of its process has let in: with a block of fences."""
    return await next_one(w, await w.manager.lock(NAME, ttl=TTL + 1).acquire(), **options)


async def next_one(w: World, one: Lease, **options: Any) -> Lease:
    """Have another task wait for the lock, release it, and return that task's lease."""
    task = waits(w, **options)
    await turns(3)
    await one.release()
    return await task


async def listening(w: World) -> list[Listener]:
    """Listen to the lock's releases on every node, as a waiter does."""
    listeners = [listen_in_memory(node) for node in w.nodes]
    for listener in listeners:
        await listener.subscribe(NOTICE[1])
    return listeners


def check_empty(w: World) -> None:
    """Check that nothing is left behind, on the nodes or in the process."""
    assert w.keys == [()] * len(w.nodes)
    session = w.manager._life.session
    assert not session.queue.entries
    assert not session.watchdog.leases
    assert session.attempt_limiter.in_flight == 0


@contextlib.asynccontextmanager
async def handing(number: int = 3, **options: Any) -> AsyncIterator[World]:
    """Open a world in which nothing is left behind."""
    async with world(number, **options) as w:
        yield w
        await asyncio.sleep(1)
        check_empty(w)


# -- what goes on, and what does not ---------------------------------------------------------------------


@BOTH
async def test_a_lock_is_handed_off_without_a_word_to_the_nodes(fencing: bool) -> None:
    """The next task has it in the same moment, as it is; the lease before ends like any other."""
    async with handing(5, fencing=fencing) as w:
        one = await holder(w)
        task = waits(w)
        await asyncio.sleep(0.01)
        before, released = commands(w), sim().time()
        report = await one.release()
        two = await task
        assert sim().time() == released
        assert commands(w) == before
        assert report.count(ReleaseOutcome.HANDED_OFF) == 5
        assert all("another task" in node.reason or "a task of" in node.reason for node in report.nodes)
        assert (await one.release()).count(ReleaseOutcome.HANDED_OFF) == 5, "whenever it is asked again"
        assert (owner(two), two.valid_until) == (owner(one), one.valid_until)
        assert [vote.vote for vote in two.votes] == [Vote.GRANTED] * 5
        assert fence_of(two) == (fence_of(one) and fence_of(one) + 1)
        assert (one.held, two.held) == (False, True)
        for use in (one.extend, lambda: asyncio.sleep(0, one.check())):
            with pytest.raises(LockLostError) as caught:
                await use()
            assert caught.value.reason is LossReason.RELEASED
        assert not one.lost.is_set()
        two.check()
        await two.extend()
        await two.release()


async def test_each_lease_has_a_fence_of_the_block():
    """One after the other, up to the number at which the nodes' counters stand from the beginning."""
    async with handing() as w:
        lease = await holder(w)
        fences = [fence_of(lease)]
        acquires = count(w.nodes[0], "acquire")
        assert stands(w) == {fence_of(lease) + MAX_BLOCK - 1}
        for _ in range(MAX_BLOCK - 1):
            lease = await next_one(w, lease)
            fences.append(fence_of(lease))
        assert count(w.nodes[0], "acquire") == acquires
        assert fences == list(range(fences[0], fences[0] + MAX_BLOCK))
        assert stands(w) == {fences[-1]}
        # The block is used up: the nodes are asked for another one.
        after = await next_one(w, lease)
        assert count(w.nodes[0], "acquire") == acquires + 1
        assert fence_of(after) > fences[-1]
        await after.release()


async def test_fences_are_asked_for_where_they_may_be_needed():
    """One for a name that no other task wants; a block where one waits, or has just had it."""
    async with handing() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = [waits(w, ttl=TTL + number) for number in range(1, 3)]
        await turns(2)
        await lease.release()
        for task in tasks:
            await (await task).release()
        assert blocks(w) == [1, MAX_BLOCK, MAX_BLOCK]
        both = await w.manager.lock(NAME, "b").acquire()
        task = waits(w, NAME, "b")
        await turns(2)
        await both.release()
        await (await task).release()
        assert blocks(w)[3:] == [1, 1], "several names are never handed off"


# -- when the nodes are asked all the same ---------------------------------------------------------------


async def refuses(w: World, one: Lease, *, before: Callable[[], Any] = lambda: None, **options: Any) -> None:
    """Have another task wait for what `one` has, release that, and see that the nodes were asked."""
    task = waits(w, **options)
    await turns(2)
    extending = before()
    await turns(2)
    acquires = count(w.nodes[0], "acquire")
    report = await one.release()
    assert report.count(ReleaseOutcome.HANDED_OFF) == 0
    two = await task
    if extending is not None:
        await asyncio.gather(extending, return_exceptions=True)
    assert owner(two) != owner(one)
    assert fence_of(two) > fence_of(one) or not fence_of(one)
    assert count(w.nodes[0], "acquire") > acquires
    await two.release()


@pytest.mark.parametrize("ttl", [TTL / 2, TTL - 0.001, TTL + 0.001, 2 * TTL])
@BOTH
async def test_an_heir_wants_the_same_ttl(ttl: float, fencing: bool) -> None:
    """A shorter one would be kept from others for longer after a crash; a longer one would not be covered."""
    async with handing(fencing=fencing) as w:
        await refuses(w, await holder(w), ttl=ttl)


@pytest.mark.parametrize("of", ["the heir", "the lease before"])
async def test_what_stays_taken_is_not_handed_off(of):
    """With `at_least` the name is to stay taken since it was asked for (R34)."""
    async with world() as w:
        before, after = ({"at_least": 0.02}, {}) if of == "the lease before" else ({}, {"at_least": 0.02})
        one = await holder(w, **before)
        await asyncio.sleep(0.03 if before else 0)
        await refuses(w, one, **after)


@BOTH
async def test_much_validity_must_be_left(fencing: bool) -> None:
    """Seven eighths of the ttl and more: it is good enough; less: the nodes are asked for a new one."""
    async with handing(fencing=fencing) as w:
        for late in (False, True):
            one = await holder(w, ttl=SHORT, extension=PLAIN)
            task = waits(w, ttl=SHORT, extension=PLAIN)
            await until(one.valid_until - 7 / 8 * SHORT + late * 0.001 - 0.0005)
            await one.release()
            two = await task
            assert (owner(two) != owner(one)) is late
            await two.release()
            await asyncio.sleep(1)


async def test_a_ttl_that_may_have_been_prolonged_is_not_handed_off():
    """An extension to a longer ttl found no quorum: some nodes may let the keys live that long."""
    async with world() as w:
        one = await holder(w, extension=PLAIN)
        each(w.nodes[:2]).refuse("LOADING Redis is loading the dataset in memory")
        with pytest.raises(LockNotAcquiredError):
            await one.extend(2 * TTL)
        each(w.nodes[:2]).refuse("")
        await refuses(w, one)


async def test_an_extension_under_way_is_waited_for_by_none():
    """The nodes may be about to say that the lock is lost: they are asked."""
    async with handing() as w:
        one = await holder(w)
        await refuses(w, one, before=lambda: asyncio.ensure_future(one.extend()))


async def test_a_lock_that_was_lost_is_not_handed_off():
    """Whether by the clock, by the nodes, or in a stall that is not noticed still: the next task asks."""
    async with handing() as w:
        for reason in (LossReason.REFUSED, LossReason.EXPIRED):
            await refuses(w, await holder(w), before=lambda reason=reason: lose(w.manager, NAME, reason))
        one = await holder(w, extension=PLAIN)
        await refuses(w, one, before=lambda: sim().advance(TTL), extension=PLAIN)
        assert one._holding.loss is LossReason.EXPIRED


async def test_the_next_in_line_wants_this_name_alone():
    """One that waits for another name, too, asks for both; and it is not passed over."""
    async with handing() as w:
        one = await holder(w)
        order: list[int] = []

        async def wants(*names: str) -> None:
            async with w.manager.lock(*names):
                order.append(len(names))

        tasks = [in_task(lambda: wants(NAME, "b")), in_task(lambda: wants(NAME))]
        await turns(3)
        assert (await one.release()).count(ReleaseOutcome.HANDED_OFF) == 0
        await asyncio.gather(*tasks)
        assert order == [2, 1]


@pytest.mark.parametrize("wants", ["writer", "reader", "fair", "leader"])
async def test_the_next_in_line_wants_the_same_kind(wants):
    """One of another kind asks the nodes itself, and has a lease of its own kind."""
    async with handing() as w:
        one = await holder(w)
        lock = {
            "writer": w.manager.rwlock(NAME).write,
            "reader": w.manager.rwlock(NAME).read,
            "fair": lambda: w.manager.lock(NAME, fair=True),
            "leader": w.manager.election(NAME).campaign,
        }[wants]()
        asks = asyncio.create_task(lock.__aenter__())
        await turns(3)
        assert (await one.release()).count(ReleaseOutcome.HANDED_OFF) == 0
        assert getattr(await asks, "mode", None) == {"writer": "write", "reader": "read"}.get(wants)
        await lock.__aexit__(None, None, None)


async def test_a_manager_that_cannot_lock_hands_nothing_on():
    """Two of its nodes are found to be one server: no lock can be trusted any more (A4)."""
    async with world() as w:
        one = await holder(w)
        task = waits(w)
        await turns(2)
        w.manager._life.session.availability.conflict = "two nodes are one server"
        assert (await one.release()).count(ReleaseOutcome.HANDED_OFF) == 0
        with pytest.raises(ConfigurationError):
            await task


# -- windows ---------------------------------------------------------------------------------------------


async def test_a_window_ends_with_a_release_that_is_told():
    """After 50 ms the nodes hear of a release, all listeners are notified, once, and others may ask first."""
    async with handing() as w:
        listener = (await listening(w))[0]
        lease = await holder(w)
        began, ends = sim().time(), []
        while not ends or ends[-1]:
            task = waits(w)
            await asyncio.sleep(0.006)
            assert listener.told == []
            released, before = sim().time(), owner(lease)
            await lease.release()
            lease = await task
            ends.append(owner(lease) == before)
        await asyncio.sleep(LATENCY)
        assert 6 <= len(ends) <= 9
        assert len(listener.told) == 1
        assert released - began <= WINDOW + 0.006
        await lease.release()


async def test_a_stall_does_not_begin_a_window_anew():
    """An heir that wakes late has had the lock meanwhile, and others have not: the window goes on."""
    async with handing() as w:
        one = await holder(w)
        task = waits(w)
        await turns(2)
        release = asyncio.create_task(one.release())
        await turns(1)
        sim().advance(YIELD + 0.001)
        await release
        two = await task
        assert owner(two) == owner(one)
        task = waits(w)
        await asyncio.sleep(WINDOW - YIELD)
        report = await two.release()
        assert report.count(ReleaseOutcome.HANDED_OFF) == 0
        assert sent(w.nodes[0])[-1].words[-2] == b"1", "with a notice"
        await (await task).release()


# -- what the heir's lease is like -----------------------------------------------------------------------


async def test_an_heir_extends_by_its_own_policy():
    """Its extensions are counted from its beginning, and tell the nodes the block's last fence (R8, R10)."""
    async with handing() as w:
        one = await holder(w)
        await one.extend()
        two = await next_one(w, one, extension=ExtensionPolicy(max_extensions=2))
        assert (one.extensions, two.extensions) == (1, 0)
        top = stands(w)
        w.nodes[2].set(counter(NAME), b"%d" % (fence_of(one) - 5), 600.0)
        await two.extend()
        await asyncio.sleep(ROUND_TRIP)
        assert two.extensions == 1
        assert stands(w) == top
        await asyncio.sleep(3 * TTL)
        with pytest.raises(LockLostError) as caught:
            two.check()
        assert caught.value.reason is LossReason.EXTENSIONS_EXHAUSTED
        await two.release()


async def test_what_is_told_of_it():
    """Hooks hear of each lease; statistics list the one that is held, and count those handed off."""
    heard = Heard()
    async with world(hooks=[heard]) as w:
        one = await holder(w, label="one")
        task = waits(w, label="two")
        await asyncio.sleep(0.01)
        await one.release()
        two = await task
        told = w.manager.statistics()
        assert (told.held, told.acquired, told.handed_off, told.released) == (1, 3, 1, 2)
        (listed,) = told.leases
        assert (listed.label, listed.fence, listed.age) == ("two", two.fence, 0.0)
        assert await w.manager.lock(NAME).try_acquire() is None
        await asyncio.sleep(0.002)
        await two.release()
        acquired, released = heard.of(Acquired), heard.of(Released)
        told = [(event.label, event.attempts, event.handed_off) for event in acquired[1:]]
        assert told == [("one", 1, False), ("two", 0, True)]
        assert acquired[-1].fence == two.fence
        assert acquired[-1].waited == pytest.approx(0.01)
        assert [(event.label, event.handed_off) for event in released[1:]] == [("one", True), ("two", False)]
        assert released[-1].held_for == pytest.approx(0.002)


# -- heirs that do not take it ---------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 1, 2])
@BOTH
async def test_an_heir_that_is_cancelled_passes_it_on(behind: int, fencing: bool) -> None:
    """To the next in line, with the next fence: none is given twice.  If none is left, it is released."""
    heard = Heard()
    async with handing(hooks=[heard], fencing=fencing) as w:
        listener = (await listening(w))[0]
        one = await holder(w)
        heir = in_task(w.manager.lock(NAME, label="heir").acquire)
        tasks = [waits(w) for _ in range(behind)]
        await turns(3)
        before = commands(w)
        release = asyncio.create_task(one.release())
        await turns(1)
        heir.cancel()
        assert isinstance((await heir).error, asyncio.CancelledError)
        await release
        await asyncio.sleep(ROUND_TRIP)
        assert [event.label for event in heard.of(GaveUp)] == ["heir"]
        assert all(event.label != "heir" for event in heard.of(Acquired) + heard.of(Released))
        if not behind:
            assert commands(w) == [number + 1 for number in before]
            assert len(listener.told) == 1
            return
        assert commands(w) == before
        two = await tasks[0]
        assert fence_of(two) == (fence_of(one) and fence_of(one) + 2)
        assert owner(two) == owner(one)
        await two.release()
        for task in tasks[1:]:
            await (await task).release()


@pytest.mark.parametrize("stall", [0.4 * TTL, 0.95 * TTL, TTL])
async def test_an_heir_that_wakes_late_judges_what_it_was_given(stall):
    """As after any win: what is not valid for long enough is no lock, and the heir asks the nodes (R3)."""
    heard = Heard()
    async with handing(hooks=[heard]) as w:
        one = await holder(w, extension=PLAIN)
        task, behind = (waits(w, extension=PLAIN) for _ in range(2))
        await turns(3)
        release = asyncio.create_task(one.release())
        await turns(1)
        sim().advance(stall)
        went_on = sim().time()
        await release
        two = await task
        assert sim().time() - went_on <= 0.1, "its own keys are not in its way"
        inherited = stall < TTL / 2
        assert (owner(two) == owner(one)) is inherited
        assert heard.of(Acquired)[-1].handed_off is inherited
        assert two.remaining > (0 if inherited else 0.9 * TTL)
        assert not behind.done(), "it has kept its place"
        await two.release()
        await (await behind).release()
        assert not heard.of(Lost)


async def test_a_manager_that_closes_releases_what_no_task_has_taken():
    """Between the hand-off and the waking of the heir: that gets no lease, and no key stays."""
    async with world() as w:
        one = await holder(w)
        tasks = [in_task(w.manager.lock(NAME).acquire) for _ in range(2)]
        await turns(3)
        queue = w.manager._life.session.queue
        one._holding.release()
        assert any(each.held for each in queue.inside())
        closing = Begun(w.manager.aclose())
        assert not any(each.held for each in queue.inside()), "it is not left to the heir"
        await closing
        for task in tasks:
            assert isinstance((await task).error, ManagerClosedError)
        await asyncio.sleep(ROUND_TRIP)
        assert w.keys == [()] * 3


# -- by a release and an acquire ---------------------------------------------------------------------------


async def hot(w: World, tasks: int, rounds: int, *, same: bool = False) -> list[int]:
    """Let tasks have the lock again and again; return which had it, in order.

    Unless they want it at the `same` time, no task can have it as another leaves it.
    """
    had: list[int] = []

    async def work(number: int) -> None:
        for _ in range(rounds):
            async with w.manager.lock(NAME, ttl=TTL if same else next(TTLS)):
                had.append(number)

    await asyncio.gather(*(work(number) for number in range(tasks)))
    return had


async def test_a_hot_name_takes_a_round_trip_and_two_commands_each():
    """An acquire and a quiet release per node, and nothing besides; tasks that come again have it in turn."""
    async with world(5) as w:
        before = [len(node.executed) for node in w.nodes]
        began = sim().time()
        assert await hot(w, 5, 60) == list(range(5)) * 60
        assert sim().time() - began <= 300 * ROUND_TRIP * 1.1
        await asyncio.sleep(ROUND_TRIP)
        for node, number in zip(w.nodes, before, strict=True):
            kinds = [one.kind for one in sent(node)[number:]]
            assert kinds == ["acquire"] + ["release", "acquire"] * 299 + ["release"]
        assert w.manager.statistics().certified == 300


# -- anything at all -------------------------------------------------------------------------------------


class Tasks:
    """Tasks of some processes that want one lock, or another one too, and all that can happen to them."""

    def __init__(self, w: World, managers: list[LockManager], draw: random.Random) -> None:
        self._w = w
        self._managers = managers
        self._draw = draw
        self._inside: set[str] = set()
        self.fences: list[int] = []
        """In the order of the grants."""
        self.waits: list[float] = []

    async def one(self, manager: LockManager) -> None:
        """Want the lock once, and use it in one way or another."""
        draw = self._draw
        ttl = draw.choice((TTL, TTL, TTL, TTL, 2 * TTL))
        patience = draw.choice((None, None, None, 0.0, 0.02, 1.0))
        names = {NAME, "b"} if draw.random() < 0.1 else {NAME}
        began = sim().time()
        with contextlib.suppress(LockNotAcquiredError, LockLostError, ManagerClosedError):
            async with manager.lock(*names, ttl=ttl, blocking_timeout=patience) as lease:
                self.waits.append(sim().time() - began)
                assert not self._inside & names, "two at once"
                self._inside |= names
                try:
                    self.fences.append(fence_of(lease))
                    await self._use(manager, lease)
                finally:
                    self._inside -= names

    async def _use(self, manager: LockManager, lease: Lease) -> None:
        draw = self._draw
        chance = draw.random()
        await asyncio.sleep(draw.choice((0, 0, 0.0005, 0.003)))
        if chance < 0.1:
            await lease.extend(draw.choice((None, 3 * TTL)))
        elif chance < 0.14:
            self._w.vacate(NAME)
            lose(manager, NAME)
            await asyncio.sleep(1)
        elif chance < 0.16:
            sim().advance(draw.choice((0.2, 0.6)) * TTL)
        lease.check()

    async def run(self) -> None:
        """Let them come and go."""
        draw = self._draw
        tasks: list[asyncio.Task[None]] = []
        for _ in range(150):
            comers = [self.one(draw.choice(self._managers)) for _ in range(draw.choice((1, 1, 2, 6)))]
            tasks.extend(map(asyncio.create_task, comers))
            await (turns(draw.randrange(4)) if draw.random() < 0.6 else asyncio.sleep(0.01 * draw.random()))
            alive = [task for task in tasks if not task.done()]
            for task in draw.sample(alive, min(len(alive), draw.choice((0, 0, 1, 1, 3)))):
                task.cancel()
        closed = self._managers[-1] if draw.random() < 0.5 and len(self._managers) > 1 else None
        if closed is not None:
            await closed.aclose()
        async with asyncio.timeout(120):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.heavy) for block in range(1, 8))]
)
def test_whatever_happens_there_is_one_holder_with_a_fence_of_its_own(block: int) -> None:
    """In any order of acquires, releases, cancellations, losses, extensions, stalls and ends, and over two
    processes: one at a time, fences that grow from grant to grant, all served, nothing left.
    """
    handed_off = 0

    @virtual
    async def main(seed: int) -> None:
        nonlocal handed_off
        draw = random.Random(seed)
        number, latency = draw.choice((1, 3, 5)), lambda: draw.uniform(0.0002, 0.002)
        async with world(number, latency=latency, seed=7000 + seed) as w, w.process() as other:
            if draw.random() < 0.7:  # counters are ahead of the time: nothing but acquires makes them grow
                put(w, NAME, *[ago(-5)] * len(w.nodes))
            tasks = Tasks(w, [w.manager, other] if draw.random() < 0.6 else [w.manager], draw)
            await tasks.run()
            for one, two in itertools.pairwise(tasks.fences):
                assert one < two
            assert len(tasks.waits) > 50
            handed_off += w.manager.statistics().handed_off
            await asyncio.sleep(1)
            check_empty(w)
            assert w.manager.statistics().waiting == w.manager.statistics().held == 0
            assert all(not node._server._channels for node in w.nodes)

    for seed in range(3 * block, 3 * block + 3):
        main(seed)
    assert handed_off > 50


@contextlib.asynccontextmanager
async def at_it(managers: dict[LockManager, int], hold: float):
    """Let each manager's tasks take the lock without a pause; yield when each manager had it."""
    times: list[list[float]] = [[] for _ in managers]

    async def busy(manager: LockManager, had: list[float]) -> None:
        while True:
            async with manager.lock(NAME):
                had.append(sim().time())
                await asyncio.sleep(hold)

    tasks = [
        asyncio.create_task(busy(manager, had))
        for (manager, number), had in zip(managers.items(), times, strict=True)
        for _ in range(number)
    ]
    try:
        yield times
    finally:
        await cancelled(*tasks)


async def handed_off(w: World, after: float) -> float:
    """Have a task wait behind a lease that is held for so long; return its seconds from there to the lock."""
    lease = await w.manager.lock(NAME).acquire()
    task = in_task(w.manager.lock(NAME).acquire)
    await asyncio.sleep(after)
    released = sim().time()
    await lease.release()
    return (await task).at - released


# -- others get their turn -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "hold"), [pytest.param(4, 0.0, marks=pytest.mark.heavy), (4, 0.01), (1, 0.01)], ids=str
)
async def test_a_busy_process_lets_a_newcomer_in(tasks, hold):
    """A waiter for a lock that another process never lets go waits for one turn of it, whenever it comes."""
    draw = random.Random(5)
    nodes = [MemoryNode(latency=lambda: draw.uniform(0.0004, 0.0006)) for _ in range(3)]  # not all equal
    async with opened(nodes, seed=1) as one, opened(nodes, seed=2) as other, at_it({one: tasks}, hold):
        for number in range(30):
            await asyncio.sleep(YIELD + number * WINDOW / 23)
            began = sim().time()
            async with other.lock(NAME):
                assert sim().time() - began <= WINDOW + YIELD + 2 * hold


# -- what it costs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [True, False])
async def test_a_turn_ends_with_a_pause(alone):
    """A glimpse for pollers, where nothing listens; a yield, where a waiter does."""
    async with world() as w, w.process() as other:
        if not alone:
            w.occupy("b", None)
            listener = in_task(other.lock("b", NAME, blocking_timeout=2 * WINDOW).acquire)
        took = await handed_off(w, 2 * WINDOW - LATENCY)
        assert took == pytest.approx(
            2 * ROUND_TRIP + (handoff.YIELD_WITHOUT_LISTENERS if alone else YIELD), abs=ROUND_TRIP
        )
        if not alone:
            assert isinstance((await listener).error, LockTakenError)


async def test_a_gap_in_which_others_could_ask_begins_a_new_window():
    """It is longer than a yield, and shorter than a window."""
    async with world() as w:
        async with w.manager.lock(NAME):
            await asyncio.sleep(0.8 * WINDOW)
        await asyncio.sleep(1.2 * YIELD)
        assert await handed_off(w, WINDOW / 2) <= ROUND_TRIP


async def test_an_attempt_that_cannot_be_made_gives_up_its_place_and_its_duty(monkeypatch):
    """The release before it was quiet: the place that it kept is free again, others are notified (R13)."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock(NAME).acquire()
        elsewhere = asyncio.create_task(other.lock(NAME).acquire())
        behind = asyncio.create_task(w.manager.lock(NAME, ttl=TTL / 2).acquire())  # no heir: another ttl
        await asyncio.sleep(0.01)

        session, reads = w.manager._life.session, attempt.read_clocks

        def fail(asked: Session) -> TickContext:
            if asked is session:
                raise OSError("no clock")
            return reads(asked)

        monkeypatch.setattr(attempt, "read_clocks", fail)
        began = sim().time()
        await lease.release()
        with pytest.raises(OSError, match="no clock"):
            await behind
        assert session.attempt_limiter.in_flight == 0
        await (await elsewhere).release()
        assert sim().time() - began < 0.02, "notified: it need not poll"


def test_the_window_of_a_name_that_is_held_is_remembered():
    """It may be held for a whole window and longer until its next release, which then ends the turn (R13)."""
    turns_of = handoff.HandoffWindows()
    turns_of.count_release(NAME, 0.0, 0.0, 0)
    for number in range(2 * handoff.SPARE_WINDOWS):
        turns_of.count_release(f"{number}", YIELD + WINDOW - 0.001, YIELD + WINDOW - 0.001, 0)
    ended = turns_of.count_release(NAME, YIELD - 0.001, YIELD + WINDOW - 0.001, 0)
    assert ended is not None, "remembered since 0"
    assert (ended.began, ended.count) == (0.0, 2)


async def test_the_number_of_waiters_is_bounded(monkeypatch):
    """One waiter too many hears at once that the lock is taken, and why; others are not disturbed."""
    monkeypatch.setattr("aioredlock_ng._lock.acquisition.MAX_WAITERS", 3)
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = [waits(w) for _ in range(3)]
        await asyncio.sleep(0.01)
        began = sim().time()
        with pytest.raises(LockTakenError, match="more than 3 tasks") as caught:
            await w.manager.lock(NAME).acquire()
        assert caught.value.names == (NAME,)
        assert sim().time() == began
        await cycle(w.manager.lock("b"))
        tasks.pop().cancel()
        await turns(1)
        tasks.append(waits(w))
        await lease.release()
        for task in tasks:
            await (await task).release()
