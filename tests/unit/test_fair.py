"""Fair locks on virtual time: the line, its head starts, and its notices (R28 to R30)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aioredlock_ng import LockManager, LockTakenError
from tests.unit.tasks import cycle, in_task, sim
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import ANOTHER, LATENCY, world

NAME = "printer"
KEY = PREFIX + NAME.encode()
TICKETS = PREFIX + b"tickets:{" + KEY + b"}"
SEATS = PREFIX + b"seats:{" + KEY + b"}"
HEAD_START = 0.05


def tickets(node):
    """Return the seats of those that wait at a node, with their tickets."""
    return node._server.scores(TICKETS)


def seats(node):
    """Return the seats of those that wait at a node, in its order."""
    return sorted(tickets(node), key=lambda seat: (tickets(node)[seat], seat))


def sit(node, seat, ticket):
    """Have one stand in line of which nothing is heard."""
    for key, score in ((TICKETS, ticket), (SEATS, node._server.time_us() // 1000 + 60_000)):
        node._server.zadd(key, seat, score)
        node._server.pexpire(key, 60_000)


def labels(w):
    """Return what those that wait call themselves, in the order of each node."""
    return [[seat.decode().split(":", 3)[-1].rstrip("}") for seat in seats(node)] for node in w.nodes]


@contextlib.asynccontextmanager
async def processes(w, *names):
    """Open a manager for each name, which calls itself so."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(w.process(holder=name)) for name in names]


@contextlib.asynccontextmanager
async def wired(w, *names, **options):
    """Open managers as `processes` does, each behind wires of its own; give them with these."""
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for name in names:
            wires = [node.wire() for node in w.nodes]
            manager = LockManager(wires, clock=sim().clock, holder=name, **options)
            opened.append((await stack.enter_async_context(manager), wires))
        yield opened


def cut(wires):
    """Cut all of them."""
    for wire in wires:
        wire.cut()


def mend(wires):
    """Mend all of them."""
    for wire in wires:
        wire.mend()


async def held(manager, seconds=0.005, ends=None, label=""):
    """Have the fair lock for some time, and write down when that is over."""
    async with manager.lock(NAME, fair=True):
        await asyncio.sleep(seconds)
        if ends is not None:
            ends.append(label)


async def waiting(w, *managers):
    """Have managers wait for the lock, one after the other, behind those that do."""
    tasks, before = [], len(seats(w.nodes[0]))
    for manager in managers:
        tasks.append(asyncio.create_task(held(manager)))
        await asyncio.sleep(0.01)
    assert all(len(seats(node)) == before + len(managers) for node in w.nodes)
    return tasks


async def test_processes_are_served_in_the_order_in_which_they_asked():
    """First come, first served, whatever their clocks say; again and again."""
    async with world(5) as w, processes(w, *"abcdef") as managers:
        ends, tasks = [], []
        for label, manager in zip("abcdef", managers, strict=True):
            tasks += [asyncio.create_task(held(manager, 0.02, ends, label)) for _ in range(3)]
            await asyncio.sleep(0.003)
        began = sim().time()
        await asyncio.gather(*tasks)
        assert "".join(ends) == 3 * "abcdef"
        assert sim().time() - began < 18 * (0.02 + 4 * LATENCY)


async def test_all_nodes_come_to_the_same_order():
    """Nodes that hear of two calls in different orders have the same one behind their undo."""
    async with world(3) as w, wired(w, *"ab") as ((a, to_a), (b, to_b)):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        to_a[0].extra = to_b[1].extra = 0.01
        tasks = [asyncio.create_task(held(manager)) for manager in (a, b)]
        await asyncio.sleep(0.012)
        assert sorted(line[0] for line in labels(w)[:2]) == ["a", "b"]  # they disagree
        await asyncio.sleep(0.1)
        assert len(set(map(tuple, labels(w)))) == 1
        await lease.release()
        await asyncio.gather(*tasks)


async def test_a_single_try_does_not_overtake():
    """It takes no seat, and stands behind all that have one; when none has, it may have the lock."""
    async with world(3) as w, processes(w, "a", "b") as (a, b):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        (task,) = await waiting(w, a)
        for node in w.nodes:
            node._server._channels.clear()  # no notice reaches it
        await lease.release()
        assert await b.lock(NAME, fair=True).try_acquire() is None
        assert labels(w) == [["a"]] * 3
        await asyncio.wait_for(task, 1.5)  # it asks by itself
        single = await b.lock(NAME, fair=True).try_acquire()
        await single.release()


async def test_a_call_that_gives_up_leaves_the_line():
    """By its time, or cancelled: its seat is gone, and the next one is notified at once; what a line leaves
    behind keeps no lock from other clients.
    """
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        gives_up = in_task(a.lock(NAME, fair=True, blocking_timeout=0.2).acquire)
        await asyncio.sleep(0.01)
        cancelled, last = await waiting(w, b, c)
        assert labels(w) == [["a", "b", "c"]] * 3
        assert isinstance((await gives_up).error, LockTakenError)
        cancelled.cancel()
        await asyncio.sleep(0.01)
        assert labels(w) == [["c"]] * 3
        began = sim().time()
        await lease.release()
        await last
        assert sim().time() - began < 0.02
        await asyncio.sleep(0.01)
        assert not any(w.keys)
        for node in w.nodes:
            node._server.zadd(TICKETS, b"ghost", 1)
            node._server.pexpire(TICKETS, 60_000)
        await cycle(a.lock(NAME, fair=True, blocking_timeout=1.0))


async def test_the_head_that_leaves_a_free_lock_has_the_next_one_told():
    """A head that is cancelled when it has been notified costs the others no head start."""
    async with world(3) as w, processes(w, "a", "b", "c") as managers:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        first, second, third = await waiting(w, *managers)
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


async def test_a_seat_that_a_node_lost_comes_back_to_its_place():
    """Later tries carry the ticket: a node that has forgotten the line has the same order again."""
    async with world(3) as w, processes(w, "a", "b", "c") as managers:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        tasks = await waiting(w, *managers)
        before = sorted(tickets(w.nodes[0]).values())
        for key in (TICKETS, SEATS):
            w.nodes[0].delete(key)
        await asyncio.sleep(0.6)  # the reminders of all
        assert labels(w) == [["a", "b", "c"]] * 3
        assert sorted(tickets(w.nodes[0]).values()) == before
        await lease.release()
        await asyncio.gather(*tasks)


async def test_a_dead_waiter_costs_one_head_start_once():
    """Two in line are cut off: the third waits for two head starts, and the fourth for nothing."""
    async with world(3) as w, wired(w, *"abcd") as opened:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        *dead, third, fourth = await waiting(w, *(manager for manager, _ in opened))
        for _, wires in opened[:2]:
            cut(wires)
        deaf = [{seat: node._server._channels.pop(seat) for seat in seats(node)[:2]} for node in w.nodes]
        began = sim().time()
        await lease.release()
        await third
        took = sim().time() - began
        assert 2 * HEAD_START <= took < 2 * HEAD_START + 0.02, took
        await fourth
        assert sim().time() - began - took < 0.02
        for node, channels in zip(w.nodes, deaf, strict=True):
            node._server._channels |= channels
        for task, (_, wires) in zip(dead, opened, strict=False):
            task.cancel()
            mend(wires)
        await asyncio.wait(dead)


async def test_a_dead_process_is_passed_by_when_its_connections_are_gone():
    """Those that do not listen any more are passed over: the next two that do are notified."""
    async with world(3) as w, processes(w, "c") as (c,):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        for node in w.nodes:  # as a kill leaves them: seats without a connection
            sit(node, b"a", 1)
            sit(node, b"b", 2)
        (third,) = await waiting(w, c)
        assert labels(w) == [["a", "b", "c"]] * 3
        began = sim().time()
        await lease.release()
        await third
        assert sim().time() - began < 2 * HEAD_START + 0.02


async def test_an_expired_holder_is_followed_in_order():
    """A holder that dies is followed by the first in line when its keys have ended, and so on."""
    async with world(3) as w, processes(w, "a", "b", "c") as managers:
        ends, tasks = [], []
        w.occupy(NAME, 2.0, value=ANOTHER)
        began = sim().time()
        for label, manager in zip("abc", managers, strict=True):
            tasks.append(asyncio.create_task(held(manager, 0.01, ends, label)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert ends == ["a", "b", "c"]
        assert 2.0 < sim().time() - began < 2.2
        assert count(w.nodes[0], "fair-acquire") <= 30


async def test_a_release_wakes_the_first_two():
    """Two are notified, each on its channel; the others of many do not hear of it."""
    async with world(3) as w, processes(w, *"abcde") as managers:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        tasks = await waiting(w, *managers)
        told, server = [], w.nodes[0]._server
        publish = server.publish
        server.publish = lambda channel, message: told.append((channel, message)) or publish(channel, message)
        first, second = seats(w.nodes[0])[:2]
        await lease.release()
        assert told[:2] == [(first, b"1:0@" + TICKETS), (second, b"1:1@" + TICKETS)]
        assert [channel for channel, _ in told[2:]] in ([], [KEY])
        await asyncio.gather(*tasks)


async def test_the_second_in_line_asks_a_head_start_later():
    """When the first, which was notified, does not ask, the second does as soon as nodes would grant it."""
    async with world(3) as w, wired(w, "dead") as ((dead, wires),), w.process() as other:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        first, second = await waiting(w, dead, other)
        cut(wires)
        began, asked = sim().time(), count(w.nodes[0], "fair-acquire")
        await lease.release()
        await second
        assert HEAD_START < sim().time() - began < HEAD_START + 0.02
        assert count(w.nodes[0], "fair-acquire") == asked + 1
        first.cancel()
        mend(wires)
        await asyncio.wait((first,))


async def test_a_plain_client_comes_in_between_and_is_excluded():
    """It stands in no line, is harmless, and those in line go on behind it."""
    async with world(3) as w, processes(w, "a", "b") as (a, b), w.process() as plain:
        inside = []

        async def work(manager, fair):
            for _ in range(20):
                async with manager.lock(NAME, fair=fair) as lease:
                    inside.append(lease)
                    await asyncio.sleep(0.003)
                    assert inside == [lease]
                    inside.clear()

        await asyncio.wait_for(asyncio.gather(work(a, True), work(b, True), work(plain, False)), 30)
        await asyncio.sleep(0.01)
        assert not any(w.keys)


@pytest.mark.parametrize(
    ("names", "options", "error", "words"),
    [
        ("a", {"fair": 1}, TypeError, "fair must be True or False, got 1"),
        ("a", {"fair": True, "at_least": 5}, ValueError, "a fair lock has no at_least, got at_least=5"),
        ("ab", {"fair": True}, ValueError, "a fair lock has one name, got"),
    ],
)
def test_what_cannot_be_fair_is_refused(names, options, error, words):
    """At the call, with the value."""
    manager = LockManager(["redis://localhost"])
    with pytest.raises(error, match=words):
        manager.lock(*names, **options)


async def test_a_refusal_says_how_many_come_first():
    """With the holder, as far as it is known, and for how long that is so at the least."""
    async with world(3) as w, processes(w, "a", "b", "c") as (a, b, c):
        w.occupy(NAME, 2.0, value=ANOTHER)
        tasks = await waiting(w, a, b)
        words = "is held by another; 2 processes are ahead in the queue"
        with pytest.raises(LockTakenError, match=words) as info:
            await c.lock(NAME, fair=True, blocking_timeout=0).acquire()
        assert info.value.retry_after == pytest.approx(2.0 - 0.02 + 2 * HEAD_START, abs=0.01)
        await asyncio.gather(*tasks)
