"""What faults do to those in line for a fair lock: they cost order, or a bounded time (R28 to R30)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from tests.unit.test_fair import KEY, NAME, held, labels, processes, waiting
from tests.unit.worlds import LATENCY, PLAIN, PREFIX, TTL, count, in_task, sim, virtual, world


@virtual
async def test_a_late_release_leaves_the_next_calls_seat_alone() -> None:
    """The body of a lost lease ends while another task of its process stands in line."""
    async with world(3) as w, processes(w, "b") as (b,), w.process(holder="a", extension=PLAIN) as a:
        lease = await a.lock(NAME, fair=True, ttl=1.0).acquire()
        ends: list[str] = []
        before = asyncio.create_task(held(b, 2.0, ends, "b"))
        await asyncio.sleep(0.01)
        behind = asyncio.create_task(held(a, 0.01, ends, "a"))
        await asyncio.sleep(1.2)
        assert not lease.held
        assert [labels(node) for node in w.nodes] == [["a"]] * 3
        await lease.release()
        assert [labels(node) for node in w.nodes] == [["a"]] * 3
        await asyncio.gather(before, behind)
        assert ends == ["b", "a"]


@pytest.mark.parametrize("seated", [False, True])
@virtual
async def test_a_repeated_release_says_nothing_of_seats(seated: bool) -> None:
    """What the ledger repeats neither takes the seat of a later call away nor brings a gone one back."""
    async with world(3) as w:
        wires = [node.wire() for node in w.nodes]
        a = LockManager(wires, clock=sim().clock, holder="a")
        await a.start()
        lease = await w.manager.lock(NAME, fair=True).acquire()
        task = in_task(a.lock(NAME, fair=True).acquire)
        await asyncio.sleep(0.01 if seated else LATENCY / 2)  # then it asks again, and has a ticket
        for wire in wires:
            wire.cut(requests=False)
        while count(w.nodes[0], "fair-acquire") < 2 + seated:
            await asyncio.sleep(LATENCY)
        for node, wire in zip(w.nodes, wires, strict=True):
            node.disconnect()
            wire.mend()
        await asyncio.sleep(0.7)
        assert sum(node.owed for node in a.statistics().nodes) > 0
        for _ in range(200):
            await asyncio.sleep(0.01)
            assert [labels(node) for node in w.nodes] == [["a"]] * 3
        task.cancel()
        await asyncio.sleep(0.01)
        for _ in range(200):
            assert [labels(node) for node in w.nodes] == [[]] * 3
            await asyncio.sleep(0.01)
        await lease.release()
        await a.aclose()


@virtual
async def test_one_node_with_a_long_line_makes_no_call_ask_rarely() -> None:
    """A minority may have seats that nothing takes away, as of a clock that was set back."""
    async with world(3) as w, processes(w, "a") as (a,):
        server = w.nodes[0]._server
        for number in range(500):
            server.zadd(mark_key(PREFIX, TICKETS, KEY), b"ghost %d" % number, number + 1)
            server.zadd(mark_key(PREFIX, SEATS, KEY), b"ghost %d" % number, 2**53)
        for mark in (TICKETS, SEATS):
            server.pexpire(mark_key(PREFIX, mark, KEY), 3_600_000)
        lease = await w.manager.lock(NAME, fair=True, ttl=3 * TTL).acquire()
        task = asyncio.create_task(held(a, 0.0, [], ""))
        await asyncio.sleep(3.0)
        assert count(w.nodes[1], "fair-acquire") > 6
        await lease.release()
        await asyncio.wait_for(task, 0.1)


@virtual
async def test_closing_leaves_the_line() -> None:
    """A manager that closes while a call of its waits takes the seat along, and has the next one told."""
    async with world(3) as w, processes(w, "b") as (b,):
        a = LockManager(w.nodes, clock=sim().clock, holder="a")
        await a.start()
        lease = await w.manager.lock(NAME, fair=True).acquire()
        first, second = await waiting(w, a, b)
        await a.aclose()
        assert [labels(node) for node in w.nodes] == [["b"]] * 3
        with contextlib.suppress(Exception):
            await first
        began = sim().time()
        await lease.release()
        await second
        assert sim().time() - began < 0.02
