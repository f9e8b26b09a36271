"""The time limits of rounds (R1), and when the watchdog looks: one timer for all, each in its own time."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field

import pytest

from aioredlock_ng import ExtensionPolicy
from aioredlock_ng._lock.watchdog import TICK, Watchdog
from aioredlock_ng._round.deadlines import SPARE_ENTRIES, DeadlineHeap, Deadlines
from tests.counting import Compared, counted
from tests.unit.tasks import cancelled, cycle, sim, until
from tests.unit.worlds import LATENCY, World, world


class Thing:
    """Something with a limited time; remembers when that ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.done = False
        self.ended_at: float | None = None
        self._error = error

    def time_out(self) -> None:
        """As in `Limited`."""
        assert not self.done, "what is over is left alone"
        self.done = True
        self.ended_at = asyncio.get_running_loop().time()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("seed", range(20))
async def test_each_ends_in_its_own_time(seed: int) -> None:
    """Limits of every length, begun at any moment, some over before: none ends early, late or twice."""
    draw = random.Random(seed)
    deadlines = Deadlines()
    due: list[tuple[Thing, float | None]] = []
    for _ in range(200):
        if draw.random() < 0.3:
            await asyncio.sleep(draw.random() * 0.2)
        thing, timeout = Thing(), draw.choice((0.0, 0.1, 0.1, 0.1, draw.random()))
        deadlines.begin_after_turn(thing, timeout)
        ends = sim().time() + timeout
        if draw.random() < 0.5:  # it is over before its time, or at once
            over_at = sim().time() + draw.random() * timeout
            if over_at < ends:
                sim().call_at(over_at, setattr, thing, "done", True)
                due.append((thing, None))
                continue
        due.append((thing, ends))
    await asyncio.sleep(2)
    assert [thing.ended_at for thing, _ in due] == [ends for _, ends in due]


async def test_the_time_begins_when_the_turn_ends():
    """A task that keeps the loop busy before anything is written has not been kept waiting by a node."""
    deadlines, thing = Deadlines(), Thing()
    deadlines.begin_after_turn(thing, 0.1)
    sim().advance(5.0)
    busy_until = sim().time()
    await until(busy_until + 0.2)
    assert thing.ended_at == pytest.approx(busy_until + 0.1)


def test_one_that_fails_does_not_keep_the_others_from_ending() -> None:
    """Whatever comes out of the end of one, the others end, too."""
    deadlines: list[Deadlines] = []
    things = [Thing(KeyboardInterrupt()), Thing(), Thing()]

    async def main() -> None:
        deadlines.append(Deadlines())
        for number, thing in enumerate(things):
            deadlines[0].begin_after_turn(thing, 0.01 + number / 1000)
        await asyncio.sleep(5)

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(main())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        loop.run_until_complete(asyncio.sleep(0.05))
        assert all(thing.ended_at is not None for thing in things)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()


async def test_no_timer_is_left_behind(monkeypatch):
    """Each limit is shorter than those before it: its timer takes the place of theirs, and rings once."""
    rings: list[float] = []
    ring = Deadlines._ring
    monkeypatch.setattr(Deadlines, "_ring", lambda self: (rings.append(sim().time()), ring(self)))
    deadlines, things = Deadlines(), [Thing() for _ in range(4)]
    for number, thing in enumerate(things):
        deadlines.begin_after_turn(thing, 1 - number / 10)
        await asyncio.sleep(0)
    await asyncio.sleep(2)
    assert rings == [thing.ended_at for thing in reversed(things)]


class Limit(Compared, float):
    """A limit, and the moment that it leads to."""

    def __radd__(self, now: float) -> Limit:
        return Limit(now + float(self))


async def test_a_limit_costs_the_same_however_many_there_are():
    """Thousands of tries that fail together have falling limits: their number is no more than a number."""

    async def lines_per_limit(number: int) -> float:
        deadlines, things = Deadlines(), [Thing() for _ in range(number)]
        with counted() as work:
            for i, thing in enumerate(things):
                deadlines.begin_after_turn(thing, Limit(1 - i / number / 2))
            await asyncio.sleep(2)
        assert all(thing.done for thing in things)
        return work.lines / number

    costs = [await lines_per_limit(number) for number in (60, 500, 8000)]
    assert max(costs) < 1.5 * min(costs), "more than the logarithm in a heap"


@pytest.mark.parametrize("seed", range(20))
def test_items_come_up_in_the_order_of_their_last_moments(seed: int) -> None:
    """Pushed again, dropped, over and pushed in any order: each comes up once, when it was last due."""
    draw, heap, now = random.Random(seed), DeadlineHeap[Thing](), 0.0
    things, due = [Thing() for _ in range(40)], dict[Thing, float]()
    for _ in range(2000):
        thing = draw.choice(things)
        match draw.choice("ppppdon"):
            case "p" if not thing.done:
                due[thing] = now + draw.random()
                heap.push(thing, due[thing])
                assert len(heap._entries) <= 2 * len(heap) + SPARE_ENTRIES
            case "d":
                due.pop(thing, None)
                heap.drop(thing)
            case "o":
                thing.done = True
                due.pop(thing, None)
                things[things.index(thing)] = Thing()  # what is over stays so
            case _:
                now += draw.random() / 20
                while (item := heap.pop(now)) is not None:
                    assert due.pop(item) <= now
        assert heap.next_due() == min(due.values(), default=math.inf)
        assert len(heap) >= len(due), "what is over, too, until it comes up"


# -- the watchdog ------------------------------------------------------------------------------------


def watchdog_of(w: World) -> Watchdog:
    """Return the watchdog of a world's manager."""
    session = w.manager._life.session
    assert session is not None
    return session.watchdog


@pytest.mark.parametrize("held_for", [0.0, 4 * TICK], ids=["fresh", "seen"])
async def test_a_watchdog_sleeps_when_no_lease_is_left(held_for):
    """A released lease keeps it awake for a tick or two, however long it would have lived."""
    async with world() as w:
        lease = await w.manager.lock("a", ttl=86_400).acquire()
        await asyncio.sleep(held_for)
        assert watchdog_of(w).wakes_at <= sim().clock.now() + TICK
        await lease.release()
        await asyncio.sleep(3 * TICK)
        assert watchdog_of(w).wakes_at == math.inf
        assert not watchdog_of(w).fresh


async def test_leases_that_come_and_go_do_not_wake_the_watchdog(monkeypatch):
    """The first one does; it then looks once a tick of its own accord, and finds each one gone."""
    woken: list[float] = []
    wake = Watchdog.wake
    monkeypatch.setattr(Watchdog, "wake", lambda self: (woken.append(sim().time()), wake(self)))
    async with world() as w:
        for _ in range(200):
            await cycle(w.manager.lock("a"))
            await asyncio.sleep(TICK / 10)
        assert len(woken) == 1
        assert not watchdog_of(w).fresh


@pytest.mark.parametrize("ttl", [0.005, 0.02])
async def test_the_shortest_leases_are_extended_in_time(ttl):
    """They are due long before the tick that the watchdog sleeps for, whether or not it has seen them."""
    async with world(latency=LATENCY / 20, node_timeout=0.001) as w, w.manager.lock("long"):
        await asyncio.sleep(1.7 * TICK)
        async with w.manager.lock("a", ttl=ttl, extension=ExtensionPolicy(grace=0.0)) as lease:
            await asyncio.sleep(TICK)
            assert lease.held
            assert lease.extensions > TICK / ttl


@dataclass(slots=True, eq=False)
class Looked:
    """An item of a watchdog, due once."""

    due: float
    at: list[float] = field(default_factory=list)
    done = property(lambda self: bool(self.at))

    def check_due(self, now: float) -> None:
        """As in `Watched`."""
        self.at.append(now)

    def thin_out(self) -> None:
        """As in `Watched`."""


async def test_what_was_won_before_the_watchdog_runs_is_looked_at_in_time():
    """It is not forgotten, and neither is what is due already."""
    clock = sim().clock
    watchdog = Watchdog(clock, lambda *_: None)
    late, soon = Looked(clock.now() - 1.0), Looked(clock.now() + 0.01)
    for each in (late, soon):
        watchdog.fresh[each] = None
        watchdog.wake()  # it does not sleep yet
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0.02)
    assert late.at == pytest.approx([clock.now() - 0.019])
    assert soon.at == pytest.approx([clock.now() - 0.01])
    await cancelled(task)
