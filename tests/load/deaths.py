"""Permits of processes that are killed at random: never two in a slot, and all of them free after a ttl.

    python -m tests.load.deaths --minutes 5 [--processes 8] [--permits 3]

Processes over five real servers hold permits of one semaphore for moments (`mortal.py`).  Each is killed
(SIGKILL) some time, wherever that strikes, and another one takes its place; in the end all are.  Exit code 1
when two had one slot, a fence did not grow in its slot, or a permit was not free again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes, local_nodes
from tests.load.mortal import NAME

ROOT: Final = Path(__file__).parents[2]

TTL: Final = 1.0  # seconds: as short as leases can be, so that what a killed holder leaves is soon free

TASKS: Final = 3  # of each process

LIFE: Final = (0.4, 2.0)  # seconds in which a process asks for permits, from the shortest to the longest

# Seconds in which all permits are free when all holders are dead: a ttl, whatever else the machine does.
FREE_WITHIN: Final = 60.0


@dataclass(kw_only=True)
class Outcome:
    """What a run has shown."""

    turns: int
    killed: int  # processes that were killed, all in all
    inside: int  # turns in which one was killed
    violations: list[str]


async def deaths(seconds: float, *, processes: int, permits: int) -> Outcome:
    """Let so many processes live and die for so long."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "turns")
        record.touch()
        async with local_nodes(5) as nodes:
            ends = time.monotonic() + seconds
            orders = {
                "urls": nodes.urls,
                "record": str(record),
                "permits": permits,
                "tasks": TASKS,
                "ttl": TTL,
            }
            words = (sys.executable, "-m", "tests.load.mortal", json.dumps(orders))
            killed = sum(await asyncio.gather(*(_lives(words, ends) for _ in range(processes))))
            left = await _all_free(nodes, permits)
        return _judged(record.read_text().splitlines(), permits, killed, left)


async def _lives(words: tuple[str, ...], ends: float) -> int:
    """Start one process after the other, and kill each; returns how many."""
    killed = 0
    while time.monotonic() < ends:
        process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None, "it is a pipe"
        await process.stdout.readline()  # it is ready
        await asyncio.sleep(random.uniform(*LIFE))
        assert process.returncode is None, "it works until it is killed"
        process.kill()
        await process.wait()
        killed += 1
    return killed


async def _all_free(nodes: LocalNodes, permits: int) -> list[str]:
    """Take every permit at once, and give it back; returns what is wrong: what is still held after that."""
    async with LockManager(nodes.urls, ttl=10.0) as manager:
        pool = manager.semaphore(NAME, permits=permits)
        try:
            async with asyncio.timeout(FREE_WITHIN):
                leases = await asyncio.gather(*(pool.acquire() for _ in range(permits)))
        except TimeoutError:
            return [f"not all of {permits} permits are free within {FREE_WITHIN:g} s"]
        for lease in leases:
            await lease.release()
        # A majority was enough: on the others a dead holder's slot may have its last moments yet.
        ends = time.monotonic() + FREE_WITHIN
        while held := [node for node in await manager.inspect(NAME) if node.held]:
            if time.monotonic() > ends:
                return [f"still held: {node!r}" for node in held]
            await asyncio.sleep(TTL / 10)
        return []


def _judged(lines: Iterable[str], permits: int, killed: int, violations: list[str]) -> Outcome:
    """Check the turns of each slot: one after the other, with fences that grow."""
    began: dict[tuple[int, int], float] = {}
    ended: dict[tuple[int, int], float] = {}
    for line in lines:
        what, slot, fence, at = line.split()
        (began if what == "began" else ended)[int(slot), int(fence)] = float(at)
    left: dict[int, tuple[float, int]] = {}
    for (slot, fence), start in sorted(began.items(), key=lambda turn: turn[1]):
        before, earlier = left.get(slot, (0.0, 0))
        if not 0 <= slot < permits:
            violations.append(f"slot {slot} of {permits} at {start}")
        if start < before:
            violations.append(f"two in slot {slot} at {start}: until {before}")
        if fence <= earlier:
            violations.append(f"slot {slot} had fence {fence} after {earlier}")
        left[slot] = ended.get((slot, fence), start), fence
    return Outcome(
        turns=len(began), killed=killed, inside=len(began.keys() - ended.keys()), violations=violations
    )


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.deaths", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--permits", type=int, default=3)
    asked = parser.parse_args()
    outcome = asyncio.run(deaths(asked.minutes * 60, processes=asked.processes, permits=asked.permits))
    print(outcome)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
