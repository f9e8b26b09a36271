"""Faults cost those in line for a fair lock their order, or a bounded time (R28 to R30)."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.tasks import cancelled, in_task
from tests.unit.test_fair import (
    KEY,
    NAME,
    SEATS,
    TICKETS,
    cut,
    held,
    labels,
    mend,
    processes,
    seats,
    sit,
    waiting,
    wired,
)
from tests.unit.traces import count
from tests.unit.worlds import ANOTHER, LATENCY, PLAIN, TTL, world


def crowd(node, number, *, first=1 << 52):
    """Have silent waiters stand in line, behind all that there are if not said."""
    for ticket in range(first, first + number):
        sit(node, b"another %d" % ticket, ticket)


async def test_a_late_release_leaves_the_next_calls_seat_alone():
    """The body of a lost lease ends while another task of its process stands in line."""
    async with world(3) as w, processes(w, "b") as (b,), w.process(holder="a", extension=PLAIN) as a:
        lease = await a.lock(NAME, fair=True, ttl=1.0).acquire()
        ends = []
        before = asyncio.create_task(held(b, 2.0, ends, "b"))
        await asyncio.sleep(0.01)
        behind = asyncio.create_task(held(a, 0.01, ends, "a"))
        await asyncio.sleep(1.2)
        assert not lease.held
        assert labels(w) == [["a"]] * 3
        await lease.release()
        assert labels(w) == [["a"]] * 3
        await asyncio.gather(before, behind)
        assert ends == ["b", "a"]


@pytest.mark.parametrize("seated", [False, True])
async def test_a_repeated_release_says_nothing_of_seats(seated):
    """A release that the ledger repeats neither takes a later call's seat nor brings a gone one back."""
    async with world(3) as w, wired(w, "a") as ((a, wires),):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        task = in_task(a.lock(NAME, fair=True).acquire)
        await asyncio.sleep(0.01 if seated else LATENCY / 2)  # then it asks again, and has a ticket
        for wire in wires:
            wire.cut(requests=False)
        while count(w.nodes[0], "fair-acquire") < 2 + seated:
            await asyncio.sleep(LATENCY)
        for node in w.nodes:
            node.disconnect()
        mend(wires)
        await asyncio.sleep(0.7)
        assert sum(node.pending_releases for node in a.statistics().nodes) > 0
        for line in (["a"], []):
            for _ in range(200):
                await asyncio.sleep(0.01)
                assert labels(w) == [line] * 3
            task.cancel()
        await lease.release()


async def test_one_node_with_a_long_line_makes_no_call_ask_rarely():
    """A minority may have seats that nothing takes away, as of a clock that was set back."""
    async with world(3) as w, processes(w, "a") as (a,):
        crowd(w.nodes[0], 500, first=1)
        lease = await w.manager.lock(NAME, fair=True, ttl=3 * TTL).acquire()
        task = asyncio.create_task(held(a))
        await asyncio.sleep(3.0)
        assert count(w.nodes[1], "fair-acquire") > 6
        await lease.release()
        await asyncio.wait_for(task, 0.1)


async def test_one_far_behind_asks_rarely():
    """The more come before a call the rarer it asks by itself, and it keeps its seat all the same."""
    async with world(3) as w, processes(w, "a") as (a,):
        lease = await w.manager.lock(NAME, fair=True, ttl=3 * TTL).acquire()
        for node in w.nodes:
            crowd(node, 200, first=1)
        asked = count(w.nodes[0], "fair-acquire")
        task = asyncio.create_task(held(a))
        await asyncio.sleep(20.0)
        assert 4 <= count(w.nodes[0], "fair-acquire") - asked <= 12
        assert all("a" in line for line in labels(w))
        task.cancel()
        await lease.release()
        await asyncio.sleep(0.1)


async def test_one_that_asks_later_stands_behind_whatever_clocks_say():
    """A majority knows of the first; the node that does not has a clock that is far behind."""
    async with world(3) as w, processes(w, "b") as (b,), wired(w, "a") as ((a, wires),):
        wires[2].cut()
        ends = []
        lease = await w.manager.lock(NAME, fair=True).acquire()
        w.nodes[2].step_clock(-5.0)
        first = asyncio.create_task(held(a, 0.005, ends, "a"))
        await asyncio.sleep(0.2)
        second = asyncio.create_task(held(b, 0.005, ends, "b"))
        await asyncio.sleep(0.2)
        assert labels(w) == [["a", "b"], ["a", "b"], ["b"]]
        await lease.release()
        await asyncio.gather(first, second)
        assert ends == ["a", "b"]
        mend(wires)


async def test_a_head_whose_seats_were_lost_has_the_lock_at_once():
    """Its ticket says where it stands: it is before those whose seats were kept."""
    async with world(3) as w, processes(w, "a") as (a,):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        (task,) = await waiting(w, a)
        for node in w.nodes:
            crowd(node, 20)
            head = seats(node)[0]
            for key in (TICKETS, SEATS):
                node._server.execute([b"ZREM", key, head])
        asked = count(w.nodes[0], "fair-acquire")
        await lease.release()
        await task
        assert count(w.nodes[0], "fair-acquire") == asked + 1


async def test_a_seat_outlives_reminders_that_do_not_arrive():
    """One that is cut off for two of them has not lost its place."""
    async with world(3) as w, wired(w, "a") as ((a, wires),):
        lease = await w.manager.lock(NAME, fair=True, ttl=3 * TTL).acquire()
        task = asyncio.create_task(held(a))
        await asyncio.sleep(3.0)
        cut(wires)
        await asyncio.sleep(1.4)
        assert labels(w) == [["a"]] * 3
        mend(wires)
        await lease.release()
        await task


async def test_one_that_had_the_lock_leaves_where_it_was_refused():
    """A node that did not grant it forgets the seat with the release."""
    async with world(3) as w, processes(w, "a") as (a,):
        lease = await w.manager.lock(NAME, fair=True).acquire()
        (task,) = await waiting(w, a)
        w.nodes[2].set(KEY, ANOTHER, 60.0)  # as of a client that none of the others knows
        await lease.release()
        await task
        await asyncio.sleep(0.01)
        assert labels(w) == [[]] * 3


async def test_one_that_lost_the_lock_leaves_where_it_was_refused():
    """Its seat goes with the loss, and not with its release, for by then it may be the next call's."""
    async with world(3) as w, w.process(holder="a", extension=PLAIN) as a:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        task = asyncio.create_task(a.lock(NAME, fair=True, ttl=1.0).acquire())
        await asyncio.sleep(0.01)
        w.nodes[2].set(KEY, ANOTHER, 60.0)
        await lease.release()
        await asyncio.sleep(0.1)
        assert labels(w) == [[], [], ["a"]]
        await asyncio.sleep(1.0)
        assert labels(w) == [[]] * 3
        await (await task).release()


async def test_one_far_away_is_served_in_turn():
    """Its way takes longer than a head start: once it was passed over, the others wait for it."""
    async with world(3) as w, processes(w, "b", "c") as (b, c), wired(w, "far", node_timeout=0.3) as opened:
        ((far, wires),) = opened
        for wire in wires:
            wire.extra = 0.035  # each way: 70 ms in all
        ends = []

        async def again(manager, label):
            while True:
                await held(manager, 0.2, ends, label)

        tasks = [asyncio.create_task(again(*each)) for each in ((b, "b"), (c, "c"), (far, "far"))]
        await asyncio.sleep(10.0)
        await cancelled(*tasks)
        assert ends.count("far") >= 0.8 * ends.count("b") > 5, ends
        await asyncio.sleep(0.5)
