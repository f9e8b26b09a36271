"""Quiet releases: a process passes a lock from task to task in one write, and publishes nothing (R13, R15).

Where the tasks want it alike, not even that is sent: see `test_handing_on`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from aioredlock_ng import LockManager, LockTakenError, RetryPolicy
from aioredlock_ng._local.handoff import WINDOW
from aioredlock_ng.testing._memory_connection import MemoryConnection
from tests.listening import Listener, listen_in_memory
from tests.unit.worlds import LATENCY, PREFIX, TTL, World, count, in_task, sent, sim, turns, virtual, world

NAME = "a"
CHANNEL = PREFIX + NAME.encode()
ROUND_TRIP = 2 * LATENCY
NOTICE = [b"message", CHANNEL, b"1"]
"""Of a release: one listens (R33)."""
MADE_UP_FOR = [b"message", CHANNEL, b""]
"""Of a quiet release that nothing followed."""
CAP = RetryPolicy().cap
TTLS = itertools.cycle([TTL + number for number in range(40)])
"""No two locks in a row live for as long."""


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, MemoryConnection, bytes]]:
    """Write down what is written to which connection, and when."""
    seen: list[tuple[float, MemoryConnection, bytes]] = []
    write = MemoryConnection.write

    def spy(self: MemoryConnection, data: bytes) -> None:
        seen.append((sim().time(), self, bytes(data)))
        write(self, data)

    monkeypatch.setattr(MemoryConnection, "write", spy)
    return seen


async def listening(w: World) -> list[Listener]:
    """Listen to the lock's releases on every node, as a waiter does."""
    listeners = [listen_in_memory(node) for node in w.nodes]
    for listener in listeners:
        await listener.subscribe(CHANNEL)
    return listeners


async def hot(manager: LockManager, tasks: int, rounds: int, *, alike: bool = True) -> list[tuple[int, int]]:
    """Let so many tasks have the lock so often; return which task had it with which fence, in order.

    Unless they want it all `alike`, no task can have it as another leaves it.
    """
    had: list[tuple[int, int]] = []

    async def work(number: int) -> None:
        for _ in range(rounds):
            async with manager.lock(NAME, ttl=TTL if alike else next(TTLS)) as lease:
                had.append((number, lease.fence or 0))

    await asyncio.gather(*(work(number) for number in range(tasks)))
    return had


# -- one write, one round trip -------------------------------------------------------------------------


@pytest.mark.parametrize("fencing", [True, False])
def test_a_release_and_the_next_acquire_leave_in_one_write(fencing, writes):
    """One round trip after the release the next task of the process has the lock: one write per node."""

    @virtual
    async def main() -> None:
        async with world(5, fencing=fencing) as w:
            lease = await w.manager.lock(NAME, ttl=next(TTLS)).acquire()
            waiter = asyncio.create_task(w.manager.lock(NAME, ttl=next(TTLS)).acquire())
            await asyncio.sleep(WINDOW / 2)
            del writes[:]
            released = sim().time()
            release = asyncio.create_task(lease.release())
            next_lease = await waiter
            assert sim().time() == pytest.approx(released + ROUND_TRIP)
            before, after = lease._holding.owner, next_lease._holding.owner
            assert before != after
            assert [when for when, _, _ in writes] == [released] * 5
            assert len({id(connection) for _, connection, _ in writes}) == 5
            for _, _, data in writes:
                assert -1 < data.find(before) < data.find(after), "in this order (R5, R15)"
            await release
            await next_lease.release()

    main()


@virtual
async def test_a_quiet_release_costs_two_commands_per_node():
    """A hot name within one process takes an acquire and a release per node, and nothing besides."""
    async with world(5) as w:
        before = [len(node.executed) for node in w.nodes]
        had = await hot(w.manager, 5, 60, alike=False)
        await asyncio.sleep(ROUND_TRIP)
        assert len(had) == 300
        for node, number in zip(w.nodes, before, strict=True):
            kinds = [one.kind for one in sent(node)[number:]]
            assert kinds == ["acquire"] + ["release", "acquire"] * 299 + ["release"]


@virtual
async def test_a_hot_name_takes_a_round_trip_each():
    """Three hundred locks in a row take hardly more than three hundred round trips."""
    async with world(5) as w:
        began = sim().time()
        await hot(w.manager, 5, 60, alike=False)
        assert sim().time() - began <= 300 * ROUND_TRIP * 1.1


@virtual
async def test_tasks_have_it_in_turn():
    """First in, first out: tasks that queue up again after each lock have it one after the other."""
    async with world() as w:
        had = await hot(w.manager, 7, 20)
        assert [number for number, _ in had] == list(range(7)) * 20


@virtual
async def test_fences_grow_from_hand_to_hand():
    """Every lock has a fence of its own, above the last, made in the same round trip, or in a block."""
    async with world() as w, w.process() as other:
        ours = asyncio.create_task(hot(w.manager, 4, 50))
        theirs = asyncio.create_task(hot(other, 4, 50))
        for fences in ([fence for _, fence in had] for had in await asyncio.gather(ours, theirs)):
            assert all(one < two for one, two in itertools.pairwise(fences))
        fences = [fence for task in (ours, theirs) for _, fence in task.result()]
        assert len(set(fences)) == 400
    async with world() as w:
        await hot(w.manager, 4, 50, alike=False)
        assert w.manager.statistics().certified == 200


# -- quiet and loud ------------------------------------------------------------------------------------


@virtual
async def test_only_the_last_release_is_told():
    """While tasks of a process follow nothing is published; when none is left, a notice is."""
    async with world() as w:
        listeners = await listening(w)
        tasks = [in_task(lambda: hot(w.manager, 1, 1, alike=False)) for _ in range(10)]
        ends = await asyncio.gather(*tasks)
        await asyncio.sleep(ROUND_TRIP)
        assert ends[-1].at - ends[0].at < WINDOW, "it is one turn"
        assert count(w.nodes[0], "release") == 10
        for listener in listeners:
            assert listener.told == [NOTICE]
            assert listener.times == [pytest.approx(ends[-1].at)]


@virtual
async def test_a_lock_that_is_not_handed_on_is_told():
    """When the next in line wants other names too, or the lock has several, others are told at once."""
    async with world() as w:
        listeners = await listening(w)
        both = await w.manager.lock(NAME, "b").acquire()
        next_in_line = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(WINDOW / 4)
        await both.release()
        assert [listener.told for listener in listeners] == [[NOTICE]] * 3
        assert (await next_in_line).error is None
        await asyncio.sleep(1)

        del listeners[0].told[:]
        lease, other = await w.manager.lock(NAME).acquire(), await w.manager.lock("b").acquire()
        next_in_line = in_task(w.manager.lock(NAME, "b").acquire)
        await asyncio.sleep(WINDOW / 4)
        await lease.release()
        assert listeners[0].told == [NOTICE], "the next one still waits for b"
        await other.release()
        assert (await next_in_line).error is None


@virtual
async def test_a_try_that_fails_is_told():
    """What a contender undoes may have kept others out: each node that granted it tells so."""
    async with world() as w:
        listeners = await listening(w)
        w.occupy(NAME, 100.0, 0, 1)
        assert await w.manager.lock(NAME).try_acquire() is None
        await asyncio.sleep(ROUND_TRIP)
        assert [listener.told for listener in listeners] == [[], [], [NOTICE]]


# -- tasks that take it, and do not ------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("turn", range(8))
def test_a_taker_that_is_cancelled_leaves_nothing(turn, others):
    """Cancelled around the hand-off, it leaves no key, and waiters elsewhere are told if no task asks."""

    @virtual
    async def main() -> None:
        async with world() as w, w.process() as elsewhere:
            lease = await w.manager.lock(NAME).acquire()
            taker = in_task(w.manager.lock(NAME).acquire)
            behind = [in_task(w.manager.lock(NAME).acquire) for _ in range(others)]
            waiter = in_task(elsewhere.lock(NAME).acquire)
            await asyncio.sleep(WINDOW / 2)
            released = sim().time()
            release = asyncio.create_task(lease.release())
            await turns(turn)
            taker.cancel()
            assert isinstance((await taker).error, asyncio.CancelledError)
            async with asyncio.timeout(5):
                ends = await asyncio.gather(*behind, waiter)
            for end in ends:
                assert end.error is None
                assert end.at - released <= (CAP if others else 0) + 4 * ROUND_TRIP
            await release
            await asyncio.sleep(ROUND_TRIP)
            assert w.keys == [()] * 3

    main()


@virtual
async def test_a_taker_whose_time_ends_at_the_hand_off_asks_once():
    """Whose turn comes in the last moment of its time still makes its try, and wins."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        began = sim().time()
        taker = in_task(w.manager.lock(NAME, blocking_timeout=WINDOW / 2).acquire)
        await asyncio.sleep(WINDOW / 2 - 1e-9)
        await lease.release()
        end = await taker
        assert end.error is None
        assert end.at - began == pytest.approx(WINDOW / 2 + ROUND_TRIP)


@virtual
async def test_a_frozen_node_does_not_delay_a_hand_off():
    """Releases that a node does not answer hold up no task: the next acquire is queued behind them."""
    async with world() as w:
        w.nodes[1].freeze()
        began = sim().time()
        had = await hot(w.manager, 3, 6)
        assert len(had) == 18
        assert sim().time() - began <= 20 * ROUND_TRIP
        w.nodes[1].thaw()
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


# -- all of it -----------------------------------------------------------------------------------------


class Crowd:
    """Tasks of some processes that come, want locks with more or less patience, and may be cancelled."""

    def __init__(self, managers: list[LockManager], draw: random.Random) -> None:
        self._managers = managers
        self._draw = draw
        self._inside: set[str] = set()
        self._ends = sim().time() + 5
        self.waits: list[float] = []

    async def _work(self, manager: LockManager) -> None:
        draw = self._draw
        while sim().time() < self._ends:
            await asyncio.sleep(draw.random() * draw.choice((0, 0, 0.001, 0.05, 0.3)))
            names = {"a", "b"} if draw.random() < 0.15 else {draw.choice("ab")}
            patience = draw.choice((None, None, None, 0, 0.01, 0.1))
            began = sim().time()
            with contextlib.suppress(LockTakenError):
                async with manager.lock(*names, blocking_timeout=patience):
                    self.waits.append(sim().time() - began)
                    assert not self._inside & names, "two at once"
                    self._inside |= names
                    try:
                        await asyncio.sleep(draw.random() * draw.choice((0, 0, 0.001, 0.01, 0.08)))
                    finally:
                        self._inside -= names

    async def run(self) -> None:
        """Let them come and go, until the last one has gone."""
        draw, tasks = self._draw, []
        while sim().time() < self._ends:
            tasks.append(asyncio.create_task(self._work(draw.choice(self._managers))))
            await asyncio.sleep(0.1 * draw.random())
            alive = [task for task in tasks if not task.done()]
            if len(alive) > 10 or draw.random() < 0.5:
                draw.choice(alive).cancel()
        async with asyncio.timeout(60):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1, 9))
def test_tasks_that_come_and_go(seed):
    """Tasks that hand on, wait, give up and are cancelled at any moment: one at a time, and nothing stays."""

    @virtual
    async def main() -> None:
        draw = random.Random(seed)
        async with contextlib.AsyncExitStack() as stack:
            latency = lambda: draw.uniform(0.0002, 0.002)  # noqa: E731
            number = draw.choice((1, 3, 5))
            w = await stack.enter_async_context(world(number, latency=latency, seed=1000 + seed))
            managers = [w.manager]
            managers += [await stack.enter_async_context(w.process()) for _ in range(draw.randrange(1, 4))]
            crowd = Crowd(managers, draw)
            await crowd.run()
            assert len(crowd.waits) > 300
            assert max(crowd.waits) <= 3 * CAP
            await asyncio.sleep(0.1)
            assert w.keys == [()] * number
            assert all(not node._server._channels for node in w.nodes)
            for manager in managers:
                assert manager.statistics().waiting == manager.statistics().held == 0
                assert manager._life.session is not None
                assert not manager._life.session.queue.entries

    main()
