"""Turns: a process that always wants a lock lets others have it, at a small and bounded price (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from aioredlock_ng import LockLostError, LockManager, LockTakenError
from aioredlock_ng._acquire import acquisition
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._local import handoff, local_queue
from aioredlock_ng._local.admission import Admission
from aioredlock_ng._local.handoff import WINDOW, YIELD, YIELD_WITHOUT_LISTENERS, HandoffWindows
from aioredlock_ng._local.local_queue import LocalQueue, Ticket
from aioredlock_ng.testing import MemoryNode
from tests.counting import counted
from tests.unit.worlds import LATENCY, World, count, in_task, opened, sim, turns, virtual, world

NAME = "a"
ROUND_TRIP = 2 * LATENCY
WATCHED = 5.0
"""Seconds of virtual time for which processes are watched."""

PRICE = 0.1
"""Share of its locks that a process alone may lose: a glimpse and some round trips for each turn."""


async def busy(manager: LockManager, hold: float, times: list[float]) -> None:
    """Take the lock again and again, without any pause; write down when."""
    while True:
        async with manager.lock(NAME):
            times.append(sim().time())
            await asyncio.sleep(hold)


@contextlib.asynccontextmanager
async def at_it(managers: dict[LockManager, int], hold: float):
    """Let each manager's so many tasks loop meanwhile; yield when each manager had the lock."""
    times: list[list[float]] = [[] for _ in managers]
    tasks = [
        asyncio.create_task(busy(manager, hold, had))
        for (manager, number), had in zip(managers.items(), times, strict=True)
        for _ in range(number)
    ]
    try:
        yield times
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watched(managers: dict[LockManager, int], hold: float) -> list[list[float]]:
    """Return when each manager had the lock, of which so many tasks wanted it all the time."""
    async with at_it(managers, hold) as times:
        await asyncio.sleep(WATCHED)
    return times


def longest_wait(times: list[float]) -> float:
    """Return the longest time that a process was without the lock."""
    ended = sim().time()
    return max(end - start for start, end in itertools.pairwise([ended - WATCHED, *times, ended]))


def apart(seed: int) -> list[MemoryNode]:
    """Make nodes that are not all alike."""
    draw = random.Random(seed)
    return [MemoryNode(latency=lambda: draw.uniform(0.0004, 0.0006)) for _ in range(3)]


# -- others get their turn -----------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(("tasks", "hold"), [(4, 0.001), (4, 0.01), (4, 0.05), (1, 0.001)], ids=str)
@pytest.mark.parametrize("seed", [1, 3, 7])
def test_two_busy_processes_take_turns(tasks, hold, seed):
    """Each of them has half of the locks, and never waits for much longer than a turn of the other."""

    @virtual
    async def main() -> None:
        nodes = apart(seed)
        async with opened(nodes, seed=seed) as one, opened(nodes, seed=seed + 1) as other:
            both = await watched({one: tasks, other: tasks}, hold)
        numbers = [len(times) for times in both]
        assert min(numbers) >= 0.8 * sum(numbers) / 2, numbers
        assert max(map(longest_wait, both)) <= 2 * (WINDOW + hold)

    main()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [1, 3])
def test_four_busy_processes_share(seed):
    """Each of them has at least half of its fair share, and waits for a bounded number of turns."""

    @virtual
    async def main() -> None:
        nodes = apart(seed)
        async with contextlib.AsyncExitStack() as stack:
            managers = [
                await stack.enter_async_context(opened(nodes, seed=10 * seed + number)) for number in range(4)
            ]
            shares = await watched(dict.fromkeys(managers, 5), 0.001)
        numbers = [len(times) for times in shares]
        assert min(numbers) >= 0.5 * sum(numbers) / 4, numbers
        assert max(map(longest_wait, shares)) <= 24 * WINDOW, "three draw for each turn: 20 were seen"

    main()


@pytest.mark.parametrize(
    ("tasks", "hold"), [pytest.param(4, 0.0, marks=pytest.mark.heavy), (4, 0.01), (1, 0.01)], ids=str
)
def test_a_busy_process_lets_a_newcomer_in(tasks, hold):
    """A waiter for a lock that another process never lets go waits for one turn of it, whenever it comes."""

    @virtual
    async def main() -> None:
        nodes = apart(5)
        async with opened(nodes, seed=1) as one, opened(nodes, seed=2) as other, at_it({one: tasks}, hold):
            for number in range(30):
                await asyncio.sleep(YIELD + number * WINDOW / 23)
                began = sim().time()
                async with other.lock(NAME):
                    assert sim().time() - began <= WINDOW + YIELD + 2 * hold

    main()


@virtual
async def test_a_turn_is_bounded_in_count(monkeypatch):
    """However little time hand-offs take, another process gets in after so many of them."""
    monkeypatch.setattr(handoff, "WINDOW", 1000.0)
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 5)
    async with world() as w, w.process() as other, at_it({w.manager: 4}, 0.0) as (times,):
        await asyncio.sleep(0.1)
        for _ in range(5):
            before = len(times)
            async with other.lock(NAME):
                # One that is over while this one asks for the first time, and a whole one.
                assert len(times) - before <= 2 * 5
            await asyncio.sleep(YIELD)


# -- what it costs -------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("tasks", [1, 4])
def test_the_price_of_turns_is_small(tasks, monkeypatch):
    """A process that is alone loses next to none of its locks to its pauses."""
    counts: list[int] = []

    @virtual
    async def main() -> None:
        async with opened(apart(1)) as manager:
            (times,) = await watched({manager: tasks}, 0.001)
        counts.append(len(times))

    main()
    monkeypatch.setattr(handoff, "WINDOW", float("inf"))
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 10**9)
    main()
    paused, free = counts
    assert (1 - PRICE) * free < paused < free


@pytest.mark.parametrize("alone", [True, False])
def test_a_turn_ends_with_a_pause(alone):
    """A glimpse for pollers, where nothing listens; a yield, where a waiter does."""

    @virtual
    async def main() -> None:
        async with world() as w, w.process() as other:
            lease = await w.manager.lock(NAME).acquire()
            task = in_task(w.manager.lock(NAME).acquire)
            listener = None if alone else in_task(other.lock("b", NAME, blocking_timeout=2 * WINDOW).acquire)
            blocked = None if alone else w.occupy("b", None)
            assert blocked is None
            await asyncio.sleep(2 * WINDOW - LATENCY)
            released = sim().time()
            await lease.release()
            end = await task
            pause = YIELD_WITHOUT_LISTENERS if alone else YIELD
            assert end.at - released == pytest.approx(2 * ROUND_TRIP + pause, abs=ROUND_TRIP)
            if listener is not None:
                assert isinstance((await listener).error, LockTakenError)

    main()


@virtual
async def test_a_task_that_comes_now_and_then_never_pauses():
    """A pause is for a process that never lets go: a lock wanted every now and then is had at once."""
    async with world() as w:
        for _ in range(10):
            began = sim().time()
            async with w.manager.lock(NAME):
                assert sim().time() - began == pytest.approx(ROUND_TRIP)
                await asyncio.sleep(WINDOW)
            await asyncio.sleep(YIELD)


@virtual
async def test_a_single_try_never_pauses():
    """try_acquire() asks at once, even when its process has had its turn."""
    async with world() as w:
        lock = w.manager.lock(NAME)
        for _ in range(20):
            began = sim().time()
            lease = await lock.try_acquire()
            assert lease is not None
            assert sim().time() - began == pytest.approx(ROUND_TRIP)
            await asyncio.sleep(WINDOW / 5)
            await lease.release()


@virtual
async def test_a_pause_is_part_of_the_wait():
    """Whose time ends in a pause asks when it is over, and no later."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock(NAME).acquire()
        task = in_task(w.manager.lock(NAME, blocking_timeout=WINDOW + YIELD / 2).acquire)
        w.occupy("b", None)
        listener = in_task(other.lock(NAME, "b", blocking_timeout=2 * WINDOW).acquire)
        began = sim().time()
        await asyncio.sleep(WINDOW)
        await lease.release()
        end = await task
        assert end.error is None
        assert end.at - began == pytest.approx(WINDOW + YIELD / 2 + ROUND_TRIP)
        await listener


@virtual
async def test_a_turn_ends_with_a_refusal():
    """A process that has just been refused has let others have the lock: its turn begins anew."""
    async with world() as w:
        async with w.manager.lock(NAME):
            await asyncio.sleep(0.8 * WINDOW)
        w.occupy(NAME, None)
        assert await w.manager.lock(NAME).try_acquire() is None
        w.vacate(NAME)
        lease = await w.manager.lock(NAME).acquire()
        task = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(0.8 * WINDOW)
        released = sim().time()
        await lease.release()
        assert (await task).at - released == pytest.approx(ROUND_TRIP)


@virtual
async def test_a_turn_ends_with_a_loss():
    """A process that lost the lock to an unknown holder does not count what it had before."""
    async with world() as w:
        async with w.manager.lock(NAME):
            await asyncio.sleep(0.6 * WINDOW)
        lost = await w.manager.lock(NAME).acquire()
        w.vacate(NAME)
        with pytest.raises(LockLostError):
            await lost.extend()
        lease = await w.manager.lock(NAME).acquire()
        task = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(0.6 * WINDOW)
        released = sim().time()
        await lease.release()
        assert (await task).at - released == pytest.approx(ROUND_TRIP)
        await lost.release()


@virtual
async def test_a_pause_that_is_cancelled_leaves_no_turn_behind():
    """A turn begins with a lock that was had: long after a pause without one, hand-offs are quick again."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        paused = asyncio.create_task(w.manager.lock(NAME).acquire())
        await asyncio.sleep(2 * WINDOW)
        await lease.release()
        await turns(2)
        paused.cancel()
        assert isinstance((await asyncio.gather(paused, return_exceptions=True))[0], asyncio.CancelledError)
        assert count(w.nodes[0], "acquire") == 1, "it had not asked yet"
        await asyncio.sleep(2 * WINDOW)
        lease = await w.manager.lock(NAME).acquire()
        task = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(LATENCY)
        released = sim().time()
        await lease.release()
        assert (await task).at - released == pytest.approx(ROUND_TRIP)


# -- what is kept -------------------------------------------------------------------------------------


def test_a_turn_is_over_after_its_time():
    """The release that ends it says so, and so does the next one to ask, once."""
    windows = HandoffWindows()
    assert windows.take(NAME, 10.0) is None
    assert windows.give_back(NAME, 10.0, 10.0 + WINDOW / 2) is None
    assert windows.take(NAME, 10.0 + WINDOW / 2) is None
    over = windows.give_back(NAME, 10.0 + WINDOW / 2, 10.0 + WINDOW)
    assert over is not None
    assert windows.take(NAME, 10.0 + WINDOW) is over
    assert windows.take(NAME, 10.0 + WINDOW) is None


def test_a_turn_is_over_after_its_hand_offs(monkeypatch):
    """So many locks in no time end it, too."""
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 3)
    windows = HandoffWindows()
    ended = []
    for _ in range(7):
        windows.take(NAME, 10.0)
        ended.append(windows.give_back(NAME, 10.0, 10.0) is not None)
    assert ended == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(("later", "paused"), [(YIELD / 2, True), (YIELD, False)])
def test_a_turn_is_forgotten_after_a_while(later, paused):
    """Who has kept still of its own accord need not do it again."""
    windows = HandoffWindows()
    windows.take(NAME, 10.0)
    windows.give_back(NAME, 10.0, 10.0 + WINDOW)
    assert (windows.take(NAME, 10.0 + WINDOW + later) is not None) is paused


def test_turns_of_names_are_apart():
    """One name's turn says nothing of another's."""
    windows = HandoffWindows()
    windows.take("b", 10.0 + WINDOW)
    windows.take(NAME, 10.0)
    assert windows.give_back("b", 10.0 + WINDOW, 10.0 + WINDOW) is None
    assert windows.give_back(NAME, 10.0, 10.0 + WINDOW) is not None


@virtual
async def test_the_memory_of_turns_is_bounded(monkeypatch):
    """Names are many: only the last of them are remembered, and the oldest are forgotten first."""
    monkeypatch.setattr(handoff, "MAX_WINDOWS", 10)
    async with world(1) as w:
        for number in range(25):
            async with w.manager.lock(f"{number}"):
                pass
        session = w.manager._life.session
        assert session is not None
        assert list(session.queue.handoff.windows) == [f"{number}" for number in range(15, 25)]


# -- many waiters -----------------------------------------------------------------------------------


class SeenPlace(local_queue.Place):
    """A place whose comparisons are counted, as a search for it would make them."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def lines_per_leave(number: int) -> float:
    """Count what it takes one of so many waiters to leave the queue, in any order."""
    queue = LocalQueue(Admission(SystemClock(), 0.1), lambda _: None, lambda _: None)
    primitive = Primitive(MUTEX, (NAME,), (NAME.encode(),))
    assert queue.enter(NAME, Ticket(queue, primitive))
    places = [queue.place(NAME, Ticket(queue, primitive), single_try=False) for _ in range(number)]
    assert type(places[0]) is SeenPlace
    random.Random(number).shuffle(places)
    with counted() as work:
        for place in places:
            queue.step_out(NAME, place)
    return work.lines / number


@virtual
async def test_leaving_a_queue_costs_the_same_however_long_it_is(monkeypatch):
    """What waiters that give up together cost grows with their number, not with its square."""
    monkeypatch.setattr(local_queue, "Place", SeenPlace)
    assert lines_per_leave(4_000) < 2 * lines_per_leave(250)


@pytest.mark.heavy
@virtual
async def test_many_waiters_that_are_cancelled_together_leave_nothing():
    """12,000 tasks wait for a held lock and are cancelled in one turn of the loop; then the lock is free."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = [asyncio.create_task(w.manager.lock(NAME).acquire()) for _ in range(12_000)]
        await asyncio.sleep(0.01)
        assert w.manager.statistics().waiting == len(tasks)
        for task in reversed(tasks):
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert w.manager.statistics().waiting == 0
        await lease.release()
        async with w.manager.lock(NAME, blocking_timeout=0):
            pass


async def line_up(w: World, number: int) -> list[asyncio.Task[object]]:
    """Let so many tasks wait for the lock."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(w.manager.lock(NAME).acquire()) for _ in range(number)
    ]
    await asyncio.sleep(0.01)
    return tasks


@virtual
async def test_the_number_of_waiters_is_bounded(monkeypatch):
    """One waiter too many is told at once that the lock is taken, and why; others are not disturbed."""
    monkeypatch.setattr(acquisition, "MAX_WAITERS", 3)
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        tasks = await line_up(w, 3)
        began = sim().time()
        with pytest.raises(LockTakenError, match="more than 3 tasks") as caught:
            await w.manager.lock(NAME).acquire()
        assert caught.value.names == (NAME,)
        assert sim().time() == began
        async with w.manager.lock("b"):
            pass
        tasks.pop().cancel()
        await asyncio.sleep(0)
        tasks += await line_up(w, 1)
        await lease.release()
        for task in tasks:
            lease = await task  # type: ignore[assignment]
            await lease.release()
