"""Processes in line for a fair lock over five servers, while a waiter and a holder are killed (R28, R29)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._core.keyspace import SEATS, TICKETS
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, Worker, python
from tests.faults.fair_worker import NAME
from tests.servers import ask, eventually

WORKER: Final = str(Path(__file__).with_name("fair_worker.py"))
PROCESSES: Final = 5
ROUNDS: Final = 12
# Turns by which processes differ in a stretch of so many rounds, of an ordinary lock seven or so.
MOST_APART: Final = 2
STRETCHES: Final = 5
# Seconds; of the holder that is killed. The others live long, so that a busy machine loses no lease.
VICTIM_TTL: Final = 1.5


class Record:
    """What the processes have written down."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "turns"
        self._file.touch()

    @property
    def turns(self) -> list[tuple[str, int]]:
        """The label and the fence of each turn, in their order."""
        lines = (line.split() for line in self._file.read_text().splitlines())
        return [(label, int(fence)) for label, fence in lines]

    async def more(self, turns: int) -> list[tuple[str, int]]:
        """Wait for so many more turns, and return them."""
        began = len(self.turns)
        await eventually(lambda: len(self.turns) >= began + turns, within=PATIENCE, what=f"{turns} turns")
        return self.turns[began : began + turns]


def line_keys(urls: list[str]) -> list[bytes]:
    """Return the keys of lines, on all nodes."""
    marks = [mark.encode() + b":{" for mark in (TICKETS, SEATS)]
    return [key for url in urls for key in ask(url, "KEYS", "*") if any(mark in key for mark in marks)]


def spread(turns: list[tuple[str, int]], processes: int) -> int:
    """Return how many turns more than another process one has had; fences have grown."""
    fences = [fence for _, fence in turns]
    assert fences == sorted(set(fences))
    of_each = Counter(label for label, _ in turns)
    return max(of_each.values()) - (min(of_each.values()) if len(of_each) == processes else 0)


async def all_take_turns(record: Record, processes: int) -> None:
    """See that turns differ by two at most in a stretch of rounds; load may keep a process from some."""
    seen = []
    while not seen or seen[-1] > MOST_APART:
        assert len(seen) < STRETCHES, seen
        seen.append(spread(await record.more(processes * ROUNDS), processes))


@pytest.mark.timeout(180)
async def test_processes_have_it_in_turn_though_some_are_killed(nodes5: LocalNodes, tmp_path: Path) -> None:
    """Turns hardly differ; the line goes on past a dead waiter and a dead holder; nothing is left."""
    record = Record(tmp_path)

    def orders(label: str, *, stays: bool = False, ttl: float = 10.0) -> str:
        wanted: dict[str, Any] = {"urls": nodes5.urls, "folder": str(tmp_path)}
        return json.dumps(wanted | {"label": label, "stays": stays, "ttl": ttl})

    async with LockManager(nodes5.urls, ttl=60, node_timeout=0.5) as manager, AsyncExitStack() as stack:

        async def start(text: str) -> Worker:
            return await stack.enter_async_context(python(WORKER, text, development=False))

        async def until_in_line(number: int) -> None:
            while len((await manager.queue(NAME)).waiters) < number:
                await asyncio.sleep(0.01)

        async with manager.lock(NAME, fair=True):
            workers = [await start(orders(f"worker-{number}")) for number in range(PROCESSES)]
            await until_in_line(PROCESSES)
        await all_take_turns(record, PROCESSES)

        async with manager.lock(NAME, fair=True):
            await until_in_line(PROCESSES)
            workers.pop().process.kill()
        await record.more(PROCESSES)
        await all_take_turns(record, PROCESSES - 1)

        victim = await start(orders("victim", stays=True, ttl=VICTIM_TTL))
        await victim.said("inside")
        await until_in_line(PROCESSES - 1)
        victim.process.kill()
        await all_take_turns(record, PROCESSES - 1)

        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            _, errors = await worker.ended()
            assert worker.process.returncode == 0, errors
        await eventually(lambda: line_keys(nodes5.urls) == [], within=PATIENCE, what="an empty line")
        assert not any(node.held for node in await manager.inspect(NAME))
