"""`LockManager.queue`: which processes stand in line for a fair lock, put together from all nodes (R28)."""

from __future__ import annotations

import asyncio
import re

import pytest

from aioredlock_ng import QueueInspection
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.tasks import sim
from tests.unit.test_fair import KEY, NAME, processes, waiting
from tests.unit.traces import PREFIX
from tests.unit.worlds import LATENCY, each, world

MAX_WAITING = 100
BEGIN = PREFIX + b"seats:{"
LINES = tuple(PREFIX + mark + b":{" + KEY + b"}" for mark in (b"tickets", b"seats"))
"""The keys of the tickets and of the seats."""


def at(ms: int) -> int:
    """Return the ticket of a time."""
    return ms * 1024


def seat(label: str, digit: str = "a") -> bytes:
    """Return a seat as a process of that label has it."""
    return BEGIN + f"{digit * 40}:{label}}}".encode()


def put(node: MemoryNode, name: bytes, ticket: int, ends_in: float = 60.0) -> None:
    """Put a seat into a node's line."""
    server = node._server
    ends = int(server.time_us() // 1000 + ends_in * 1000)
    for key, score in zip(LINES, (ticket, ends), strict=True):
        server.zadd(key, name, score)
        server.pexpire(key, 600_000)


def shown(queue: QueueInspection) -> list[tuple[int, str | None, int]]:
    """Return place, holder and number of nodes of each that waits."""
    return [(each.place, each.holder, each.known_to) for each in queue.waiters]


async def test_it_shows_those_that_wait_in_their_order() -> None:
    """With place, label, time of arrival by the nodes' time, and whether it is the one that asks."""
    async with world(3) as w, processes(w, "web-1", "we}b:2", "web-3") as managers:
        lease = await w.manager.lock(NAME, fair=True).acquire()
        assert await managers[0].queue(NAME) == QueueInspection(
            name=NAME, waiters=(), more_waiters=False, silent=()
        )
        began = sim().time()
        tasks = await waiting(w, *managers)
        queue = await managers[1].queue(NAME)
        assert shown(queue) == [(0, "web-1", 3), (1, "we}b:2", 3), (2, "web-3", 3)]
        assert [each.ours for each in queue.waiters] == [False, True, False]
        for number, each in enumerate(queue.waiters):
            assert EPOCH + began + 0.01 * number <= each.since <= EPOCH + began + 0.01 * number + 5 * LATENCY
        assert not re.search("[0-9a-f]{40}", repr(queue))
        await lease.release()
        await asyncio.gather(*tasks)
        assert (await managers[1].queue(NAME)).waiters == ()


async def test_nodes_that_do_not_answer_are_named() -> None:
    """A waiter that a majority of the others know is shown; where none answers, all are named."""
    async with world(5) as w:
        for node in w.nodes[:2]:
            put(node, seat("a"), at(1000))
            put(node, seat("b", "b"), at(2000))
        put(w.nodes[0], seat("c", "c"), at(3000))
        each(w.nodes[2:]).freeze()
        queue = await w.manager.queue(NAME)
        assert shown(queue) == [(0, "a", 2), (1, "b", 2)]
        assert [each.node for each in queue.silent] == [node.name for node in w.nodes[2:]]
        assert all(each.reason for each in queue.silent)
        each(w.nodes[:2]).freeze()
        queue = await w.manager.queue(NAME)
        assert (queue.waiters, len(queue.silent)) == ((), 5)
        each(w.nodes).thaw()


@pytest.mark.parametrize(("number", "more"), [(MAX_WAITING, False), (MAX_WAITING + 1, True)])
async def test_of_a_long_line_it_shows_the_beginning(number: int, more: bool) -> None:
    """A hundred, and that there are more."""
    async with world(1) as w:
        for place in range(number):
            put(w.nodes[0], seat(f"p{place}", f"{place % 10}"), at(1000) + place)
        queue = await w.manager.queue(NAME)
        assert [each.holder for each in queue.waiters] == [f"p{place}" for place in range(MAX_WAITING)]
        assert queue.more_waiters is more
