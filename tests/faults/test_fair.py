"""Processes in line for a fair lock over five servers, while a waiter and a holder are killed (R28, R29)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._core.keyspace import SEATS, TICKETS
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE
from tests.faults.contention import Contention, contention
from tests.servers import ask, eventually

NAME: Final = "printer"
PROCESSES: Final = 5
ROUNDS: Final = 12
STRETCHES: Final = 5
# Turns by which processes differ in a stretch of this many rounds, of an ordinary lock seven or so.
MOST_APART: Final = 2
# Seconds; of the holder that is killed.  The others live long, so that a busy machine loses no lease.
VICTIM_TTL: Final = 1.5


def line_keys(urls: list[str]) -> list[bytes]:
    """Return the keys of lines, on all nodes."""
    marks = [mark.encode() + b":{" for mark in (TICKETS, SEATS)]
    return [key for url in urls for key in ask(url, "KEYS", "*") if any(mark in key for mark in marks)]


async def all_take_turns(contenders: Contention) -> None:
    """See that turns differ by two at most in a stretch of rounds; load may keep a process from some."""
    processes = len(contenders.workers)
    seen = []
    while not seen or seen[-1] > MOST_APART:
        assert len(seen) < STRETCHES, seen
        of_each = Counter(number for number, *_ in await contenders.more(processes * ROUNDS))
        least = min(of_each.values()) if len(of_each) == processes else 0
        seen.append(max(of_each.values()) - least)


@pytest.mark.timeout(180)
async def test_processes_have_it_in_turn_though_some_are_killed(nodes5: LocalNodes) -> None:
    """Turns hardly differ; the line goes on past a dead waiter and a dead holder; nothing is left."""
    urls = nodes5.urls
    options = {"names": [NAME], "inside": 0.01, "node_timeout": 0.5}
    async with LockManager(urls, ttl=60, node_timeout=0.5) as manager:

        async def until_in_line(number: int) -> None:
            while len((await manager.queue(NAME)).waiters) < number:
                await asyncio.sleep(0.01)

        held = manager.lock(NAME, fair=True)
        lease = await held.acquire()
        async with contention(urls, kinds=["fair"] * PROCESSES, ttl=10.0, **options) as contenders:
            await until_in_line(PROCESSES)
            await lease.release()
            await all_take_turns(contenders)

            async with held:
                await until_in_line(PROCESSES)
                contenders.workers.pop().process.kill()
            await contenders.more(PROCESSES)
            await all_take_turns(contenders)

            async with contention(urls, kinds=["fair"], stays=True, ttl=VICTIM_TTL, **options) as dying:
                (victim,) = dying.workers
                await victim.said("inside")
                await until_in_line(PROCESSES - 1)
                victim.process.kill()
                await all_take_turns(contenders)

            contenders.stop()
            await contenders.ended()
        await eventually(lambda: line_keys(urls) == [], within=PATIENCE, what="an empty line")
        assert not any(node.held for node in await manager.inspect(NAME))
