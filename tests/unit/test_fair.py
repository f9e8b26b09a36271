"""Fair locks on virtual time: the line, its head starts, and what is told to it (R28 to R30)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from aioredlock_ng.testing import MemoryNode
from tests.unit.crowds import crowd
from tests.unit.worlds import (
    ANOTHER,
    LATENCY,
    PREFIX,
    Tripwire,
    World,
    count,
    in_task,
    sim,
    turns,
    virtual,
    world,
)

NAME = "printer"
KEY = PREFIX + NAME.encode()
HEAD_START = 0.05


def tickets(node: MemoryNode) -> dict[bytes, int]:
    """Return the seats of those that wait at a node, with their tickets."""
    return node._server.scores(mark_key(PREFIX, TICKETS, KEY))


def seats(node: MemoryNode) -> list[bytes]:
    """Return the seats of those that wait at a node, in its order."""
    return sorted(tickets(node), key=lambda seat: (tickets(node)[seat], seat))


def sit(node: MemoryNode, seat: bytes, ticket: int, life_ms: int = 60_000) -> None:
    """Have one stand in line of which nothing is heard."""
    server = node._server
    for mark, score in ((TICKETS, ticket), (SEATS, server.time_us() // 1000 + life_ms)):
        key = mark_key(PREFIX, mark, KEY)
        server.zadd(key, seat, score)
        if server.pttl(key) < life_ms:
            server.pexpire(key, life_ms)


def labels(node: MemoryNode) -> list[str]:
    """Return what those that wait at a node call themselves, in its order."""
    return [seat.decode().split(":", 3)[-1].rstrip("}") for seat in seats(node)]


@contextlib.asynccontextmanager
async def processes(w: World, *names: str) -> Any:
    """Open a manager for each name, which calls itself so."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(w.process(holder=name)) for name in names]


async def held(manager: LockManager, seconds: float, ends: list[str], label: str, **options: Any) -> None:
    """Have the fair lock for some time, and write down when that is over."""
    async with manager.lock(NAME, fair=True, **options):
        await asyncio.sleep(seconds)
        ends.append(label)


async def waiting(w: World, *managers: LockManager, after: float = 0.01) -> list[asyncio.Task[Any]]:
    """Have managers wait for the lock, one after the other; each holds it for a moment."""
    tasks = []
    for manager in managers:
        tasks.append(asyncio.create_task(held(manager, 0.005, [], "")))
        await asyncio.sleep(after)
    assert all(len(seats(node)) == len(managers) for node in w.nodes)
    return tasks


@virtual
async def test_processes_are_served_in_the_order_in_which_they_asked() -> None:
    """First come, first served, whatever their clocks say; again and again."""
    async with world(5) as w, processes(w, *"abcdef") as managers:
        ends: list[str] = []
        tasks = []
        for label, manager in zip("abcdef", managers, strict=True):
            tasks += [asyncio.create_task(held(manager, 0.02, ends, label)) for _ in range(3)]
            await asyncio.sleep(0.003)
        began = sim().time()
        await asyncio.gather(*tasks)
        assert "".join(ends) == 3 * "abcdef"
        assert sim().time() - began < 18 * (0.02 + 4 * LATENCY)


@virtual
async def test_an_uncontended_fair_lock_is_one_round_trip() -> None:
    """It costs what a mutex does, and leaves nothing behind."""
    async with world(3) as w:
        for node in w.nodes:
            node.executed.clear()
        began = sim().time()
        async with w.manager.lock(NAME, fair=True) as lease:
            assert sim().time() - began <= 2 * LATENCY * 1.001
            assert lease.fence > 0
        assert [len(node.executed) for node in w.nodes] == [2, 2, 2]
        assert not any(w.keys)


@pytest.mark.parametrize("fencing", [True, False])
@virtual
async def test_fair_locks_have_fences_or_none(fencing: bool) -> None:
    """A fair lock is a mutex: its fences grow, or there are none."""
    async with world(3, fencing=fencing) as w:
        fences = []
        for fair in (True, False, True):
            async with w.manager.lock(NAME, fair=fair) as lease:
                fences.append(lease.fence)
        assert fences == (sorted(set(fences)) if fencing else [None, None, None])


@virtual
async def test_a_fair_lock_and_a_mutex_exclude_each_other() -> None:
    """They are the same key, within a process and between two."""
    async with world(3) as w, w.process() as other:
        for first, second in itertools.permutations((True, False)):
            async with w.manager.lock(NAME, fair=first):
                for manager in (w.manager, other):
                    with pytest.raises(LockTakenError):
                        await manager.lock(NAME, fair=second, blocking_timeout=0).acquire()


@virtual
async def test_all_nodes_come_to_the_same_order() -> None:
    """Nodes that hear of two calls in different orders have the same one behind their undo."""
    async with world(3) as w:
        wires = {name: [node.wire() for node in w.nodes] for name in "ab"}
        async with (
            LockManager(wires["a"], clock=sim().clock, holder="a") as a,
            LockManager(wires["b"], clock=sim().clock, holder="b") as b,
        ):
            lease = await w.manager.lock(NAME, fair=True).acquire()
            for name, far in (("a", (0, 1)), ("b", (1, 0))):
                wires[name][far[0]].extra = 0.01
            tasks = [asyncio.create_task(held(manager, 0.005, [], "")) for manager in (a, b)]
            await asyncio.sleep(0.012)
            assert sorted(labels(node)[0] for node in w.nodes[:2]) == ["a", "b"]  # they disagree
            await asyncio.sleep(0.1)
            assert len({tuple(labels(node)) for node in w.nodes}) == 1
            await lease.release()
            await asyncio.gather(*tasks)


@virtual
async def test_a_single_try_does_not_overtake() -> None:
    """It takes no seat, and stands behind all that have one; when none has, it may have the lock."""
    async with world(3) as w, processes(w, "a", "b") as (a, b):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        (task,) = await waiting(w, a)
        for node in w.nodes:
            node._server._channels.clear()  # it is not told
        await lease.release()
        assert await b.lock(NAME, fair=True).try_acquire() is None
        assert [labels(node) for node in w.nodes] == [["a"]] * 3
        await task
        single = await b.lock(NAME, fair=True).try_acquire()
        assert single is not None
        await single.release()


@virtual
async def test_a_call_that_gives_up_leaves_the_line() -> None:
    """By its time, or cancelled: its seat is gone, and the next one is told at once."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        gives_up = in_task(a.lock(NAME, fair=True, blocking_timeout=0.2).acquire)
        await asyncio.sleep(0.01)
        cancelled, last = await waiting_behind(b, c)
        assert [labels(node) for node in w.nodes] == [["a", "b", "c"]] * 3
        assert isinstance((await gives_up).error, LockTakenError)
        cancelled.cancel()
        await asyncio.sleep(0.01)
        assert [labels(node) for node in w.nodes] == [["c"]] * 3
        began = sim().time()
        await lease.release()
        await last
        assert sim().time() - began < 0.02
        await asyncio.sleep(0.01)
        assert not any(w.keys)


async def waiting_behind(*managers: LockManager) -> list[asyncio.Task[Any]]:
    """Have managers wait behind those that do, one after the other."""
    tasks = []
    for manager in managers:
        tasks.append(asyncio.create_task(held(manager, 0.005, [], "")))
        await asyncio.sleep(0.01)
    return tasks


@virtual
async def test_the_head_that_leaves_a_free_lock_has_the_next_one_told() -> None:
    """A head that is cancelled when it has been told costs the others no head start."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        first, second, third = await waiting(w, a, b, c)
        for node in w.nodes:
            node._server._channels.pop(seats(node)[1])  # the second hears of nothing
        began = sim().time()
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(1.5 * LATENCY)
        first.cancel()
        await releasing
        await third
        assert sim().time() - began < HEAD_START + 0.03
        await second


@virtual
async def test_a_seat_that_a_node_lost_comes_back_to_its_place() -> None:
    """Later tries carry the ticket: a node that has forgotten the line has the same order again."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        tasks = await waiting(w, a, b, c)
        before = sorted(tickets(w.nodes[0]).values())
        for key in (mark_key(PREFIX, TICKETS, KEY), mark_key(PREFIX, SEATS, KEY)):
            w.nodes[0].delete(key)
        await asyncio.sleep(0.6)  # the reminders of all
        assert [labels(node) for node in w.nodes] == [["a", "b", "c"]] * 3
        assert sorted(tickets(w.nodes[0]).values()) == before
        await lease.release()
        await asyncio.gather(*tasks)


@virtual
async def test_a_dead_waiter_costs_one_head_start_once() -> None:
    """Two in line are cut off: the third waits for two head starts, and the fourth for nothing."""
    async with world(3) as w:
        wires = {name: [node.wire() for node in w.nodes] for name in "abcd"}
        async with contextlib.AsyncExitStack() as stack:
            opened = {}
            for name in "abcd":
                manager = LockManager(wires[name], clock=sim().clock, holder=name)
                opened[name] = await stack.enter_async_context(manager)
            lease = await w.manager.lock(NAME, fair=True).acquire()
            tasks = dict(zip("abcd", await waiting(w, *opened.values()), strict=True))
            for name in "ab":
                for wire in wires[name]:
                    wire.cut()
            deaf = [{seat: node._server._channels.pop(seat) for seat in seats(node)[:2]} for node in w.nodes]
            began = sim().time()
            await lease.release()
            await tasks["c"]
            took = sim().time() - began
            assert 2 * HEAD_START <= took < 2 * HEAD_START + 0.02, took
            await tasks["d"]
            assert sim().time() - began - took < 0.02
            for node, channels in zip(w.nodes, deaf, strict=True):
                node._server._channels |= channels
            for name in "ab":
                tasks[name].cancel()
                for wire in wires[name]:
                    wire.mend()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


@virtual
async def test_a_dead_process_is_passed_by_when_its_connections_are_gone() -> None:
    """Of those that do not listen any more none is told, but the next two that do."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        first, second, third = await waiting(w, a, b, c)
        for task in (first, second):
            task.cancel()
        for node in w.nodes:  # as a kill leaves them: seats without a connection
            for name in ("a", "b"):
                sit(node, name.encode(), 1 if name == "a" else 2)
        await asyncio.sleep(0.01)
        assert [labels(node) for node in w.nodes] == [["a", "b", "c"]] * 3
        began = sim().time()
        await lease.release()
        await third
        assert sim().time() - began < 2 * HEAD_START + 0.02


@virtual
async def test_an_expired_holder_is_followed_in_order() -> None:
    """A holder that dies is followed by the first in line when its keys have ended, and so on."""
    async with world(3) as w, processes(w, "a", "b", "c") as managers:
        ends: list[str] = []
        w.occupy(NAME, 2.0, value=ANOTHER)
        tasks = []
        began = sim().time()
        for label, manager in zip("abc", managers, strict=True):
            tasks.append(asyncio.create_task(held(manager, 0.01, ends, label)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert ends == ["a", "b", "c"]
        assert 2.0 < sim().time() - began < 2.2
        assert count(w.nodes[0], "fair-acquire") <= 30


@virtual
async def test_a_release_wakes_the_first_two() -> None:
    """It is told to two, each on its channel; the others of many do not hear of it."""
    async with world(3) as w, processes(w, *"abcde") as managers:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        tasks = await waiting(w, *managers)
        told: list[tuple[bytes, bytes]] = []
        server = w.nodes[0]._server
        publish: Callable[[bytes, bytes], int] = server.publish
        server.publish = lambda channel, message: told.append((channel, message)) or publish(channel, message)  # type: ignore[method-assign,func-returns-value]
        first, second = seats(w.nodes[0])[:2]
        await lease.release()
        free = mark_key(PREFIX, TICKETS, KEY)
        assert told[:2] == [(first, b"1:0@" + free), (second, b"1:1@" + free)]
        assert [channel for channel, _ in told[2:]] in ([], [KEY])
        await asyncio.gather(*tasks)


@virtual
async def test_the_second_in_line_asks_a_head_start_later() -> None:
    """When the first, which was told, does not ask, the second does so as soon as nodes would grant it."""
    async with world(3) as w:
        wires = [node.wire() for node in w.nodes]
        async with (
            LockManager(wires, clock=sim().clock, holder="dead") as dead,
            w.process(holder="next") as b,
        ):
            lease = await w.manager.lock(NAME, fair=True).acquire()
            first, second = await waiting(w, dead, b)
            for wire in wires:
                wire.cut()
            began, asked = sim().time(), count(w.nodes[0], "fair-acquire")
            await lease.release()
            await second
            assert HEAD_START < sim().time() - began < HEAD_START + 0.02
            assert count(w.nodes[0], "fair-acquire") == asked + 1
            first.cancel()
            for wire in wires:
                wire.mend()
            await asyncio.gather(first, return_exceptions=True)


@virtual
async def test_a_plain_client_comes_in_between_and_is_excluded() -> None:
    """It stands in no line, is harmless, and those in line go on behind it."""
    async with world(3) as w, processes(w, "a", "b") as (a, b), w.process() as plain:
        inside = 0

        async def work(manager: LockManager, fair: bool) -> None:
            nonlocal inside
            for _ in range(20):
                async with manager.lock(NAME, fair=fair):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0.003)
                    inside -= 1

        await asyncio.wait_for(asyncio.gather(work(a, True), work(b, True), work(plain, False)), 30)
        await asyncio.sleep(0.01)
        assert not any(w.keys)


@virtual
async def test_without_notices_the_line_goes_on() -> None:
    """Where nothing is told, those in line ask by themselves."""
    async with world(3) as w, processes(w, "a", "b") as managers:
        for node in w.nodes:
            node._server.publish = lambda _channel, _message: 0  # type: ignore[method-assign]
        lease = await w.manager.lock(NAME, fair=True).acquire()
        tasks = await waiting(w, *managers)
        began = sim().time()
        await lease.release()
        await asyncio.gather(*tasks)
        assert sim().time() - began < 1.5


@virtual
async def test_a_line_is_no_lock() -> None:
    """What is left of one does not keep a lock from anybody."""
    async with world(3) as w, w.process(holder="a") as a:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        (task,) = await waiting(w, a)
        task.cancel()
        await lease.release()
        for node in w.nodes:
            node._server.zadd(mark_key(PREFIX, TICKETS, KEY), b"ghost", 1)
            node._server.pexpire(mark_key(PREFIX, TICKETS, KEY), 60_000)
        async with w.manager.lock(NAME, fair=True, blocking_timeout=1.0):
            pass


@pytest.mark.parametrize("waking", [False, True])
@virtual
async def test_cancelled_at_every_pause_it_leaves_nothing(waking: bool) -> None:
    """Alone and in line: neither key nor seat stays, and the next one is not kept waiting."""
    for at in itertools.count(1):
        async with world(3) as w, processes(w, "a", "b") as (a, b):
            lease = await w.manager.lock(NAME, fair=True).acquire()
            (ahead,) = await waiting(w, a)
            tripwire = Tripwire(b.lock(NAME, fair=True).acquire(), at, waking=waking)

            async def run(tripwire: Tripwire = tripwire) -> None:
                got = await tripwire
                await got.release()  # type: ignore[attr-defined]

            task = asyncio.create_task(run())
            await asyncio.sleep(0.05)
            await lease.release()
            await asyncio.gather(ahead, task, return_exceptions=True)
            async with w.manager.lock(NAME, fair=True, blocking_timeout=0.2):
                pass
            await asyncio.sleep(0.3)
            assert not any(w.keys), at
            if not tripwire.tripped:
                assert at > 2
                return


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"fair": 1}, TypeError, "fair must be True or False, got 1"),
        ({"fair": True, "at_least": 5.0}, ValueError, "a fair lock has no at_least, got at_least=5.0"),
    ],
)
@virtual
async def test_what_cannot_be_fair_is_refused(options, error, words):
    """At the call, with the value."""
    async with world(3) as w:
        with pytest.raises(error, match=words):
            w.manager.lock(NAME, **options)
        with pytest.raises(ValueError, match="a fair lock has one name, got"):
            w.manager.lock("a", "b", fair=True)


@virtual
async def test_a_refusal_says_how_many_come_first() -> None:
    """With the holder, as far as it is known, and for how long that is so at the least."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        w.occupy(NAME, 2.0, value=ANOTHER)
        tasks = await waiting(w, a, b)
        with pytest.raises(
            LockTakenError, match="is held by another, and 2 waiting elsewhere come first"
        ) as info:
            await c.lock(NAME, fair=True, blocking_timeout=0).acquire()
        assert info.value.retry_after == pytest.approx(2.0 - 0.02 + 2 * HEAD_START, abs=0.01)
        await asyncio.gather(*tasks)


@virtual
async def test_a_fair_lock_may_be_reentrant() -> None:
    """The task that is inside goes on without the nodes."""
    async with world(3) as w:
        lock = w.manager.lock(NAME, fair=True, reentrant=True)
        async with lock as outer:
            for node in w.nodes:
                node.executed.clear()
            async with lock as inner:
                assert inner.fence == outer.fence
            assert [node.executed for node in w.nodes] == [[], [], []]
        await turns(2)


@pytest.mark.heavy
def test_hand_offs_are_few_commands() -> None:
    """Of twenty processes without a pause each has its turn; a hand-off is two round trips."""
    figures = crowd(20, fair=True, seconds=1.0)
    assert figures.rate > 150, figures
    assert figures.commands_each <= 21, figures
    assert max(figures.wins) - min(figures.wins) <= 1, figures


@pytest.mark.heavy
def test_the_dead_cost_little() -> None:
    """A fifth of fifty dies while it waits: the others lose a head start for each."""
    figures = crowd(50, fair=True, seconds=4.0, dying=10)
    assert figures.rate > 0.8 * 168, figures
    live = figures.wins[10:]
    assert max(live) - min(live) <= 1, figures


@pytest.mark.campaign
def test_a_hundred_processes() -> None:
    """The rate of hand-offs and what each costs are the same as for twenty."""
    figures = crowd(100, fair=True, seconds=1.0)
    assert figures.rate > 150, figures
    assert figures.commands_each <= 25, figures
    assert max(figures.wins) - min(figures.wins) <= 1, figures
