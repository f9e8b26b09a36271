"""How do 20 tasks get along that all want one name: in one process, and in four?

In one process an `asyncio.Lock` would do: how close is the lock to it, and how much does it ask the nodes?
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.bench import Bench
from benchmarks.counting import monitors
from benchmarks.cycles import median, rate
from benchmarks.driver import Figures, Taken, TroubleError, Turn, Turns, Worker
from benchmarks.peers import PEERS
from benchmarks.report import Row, percentile

TABLE = "One hot name, 20 tasks"
COLD: Final = 0.05
"""Seconds until all processes have got the order to begin."""

BASE = "asyncio.Lock"
"""What excludes the tasks of one process, and asks no node."""

PATIENCE: Final = 4.0
"""How many times the usual limit a turn may take: some peers' last waiters wait for seconds."""

Key = tuple[str, int]


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.excludes and spec.can("hot")), bench.settings
    for section in settings.sections:
        bench.say(f"  critical section of {section * 1000:g} ms")
        async with bench.over(peers, copies=max(settings.processes)) as (nodes, workers):
            turns = {
                (peer, processes): partial(hot_turn, bench, peer, those[:processes], section)
                for peer, those in workers.items()
                for processes in settings.processes
                if processes == 1 or not PEERS[peer].inside
            }
            taken = await bench.turns(turns, cases=len(settings.sections))
            for key, turn in turns.items():
                commands = None
                if not PEERS[key[0]].inside and taken[key].trouble is None:
                    with contextlib.suppress(TroubleError):
                        commands = (await counted(turn, nodes.urls))["commands"]
                add_hot(bench, taken, key, section, commands)


async def hot_turn(bench: Bench, peer: str, workers: Sequence[Worker], section: float) -> Figures:
    """Let the tasks, spread over the workers, fight for a name."""
    settings = bench.settings
    order: Row = {
        "name": f"{peer}:hot",
        "tasks": settings.contenders // len(workers),
        "seconds": settings.hot,
        "section": section,
        "at": time.monotonic() + COLD,
    }
    limit = settings.hot + PATIENCE * settings.limit
    parts = await asyncio.gather(
        *(worker.do("hot", limit=limit, **order) for worker in workers), return_exceptions=True
    )
    figures = []
    for part in parts:
        if isinstance(part, BaseException):
            raise part
        figures.append(part)
    rates = [part["rate"] for part in figures]
    return {
        "rate": sum(rates),
        "rates": rates,
        "waits": [wait for part in figures for wait in part["waits"]],
        "done": sum(part["done"] for part in figures),
        "tasks": settings.contenders,
    }


async def counted(turn: Turn, urls: Sequence[str]) -> Figures:
    """Count in a turn, which is not to be timed, what all nodes together are sent per acquisition."""
    async with monitors(urls) as watching:
        figures = await turn()
    commands, done = sum(monitor.commands for monitor in watching), figures["done"]
    return figures | {"commands": commands / done if done else None}


def add_hot(bench: Bench, taken: Taken[Key], key: Key, section: float, commands: float | None) -> None:
    """Add a row."""
    (peer, processes), turns = key, taken[key]
    waits = turns.all("waits")
    case = {"loop": bench.loop, "section_ms": section * 1000, "processes": processes, "peer": peer}
    bench.report.add(
        TABLE,
        **case,
        acquired_per_s=median(turns, rate),
        to_asyncio_lock=turns.to(taken.get((BASE, 1)), rate),
        to_one_process=turns.to(taken.get((peer, 1)), rate) if processes > 1 else None,
        wait_p50_ms=percentile(waits, 0.5) * 1000 if waits else None,
        wait_p99_ms=percentile(waits, 0.99) * 1000 if waits else None,
        p99_to_fair=fairness(turns),
        slowest_process=slowest(turns) if processes > 1 else None,
        commands=commands,
        turns=len(turns.figures),
        trouble=turns.trouble,
    )
    if waits:
        bench.report.curve(TABLE, waits, **case)


def of_each(turns: Turns) -> list[tuple[float, ...]]:
    """Return the rates of each process, one for each turn."""
    return list(zip(*(figures["rates"] for figures in turns.figures), strict=True))


def slowest(turns: Turns) -> float | None:
    """Return what the process got that got least in all turns together, of its fair share."""
    totals = list(map(sum, of_each(turns)))
    return min(totals) * len(totals) / sum(totals) if any(totals) else None


def fairness(turns: Turns) -> float | None:
    """Return the p99 of the waits as a multiple of what one turn of each waiter takes."""
    ratios = [
        percentile(figures["waits"], 0.99) * figures["rate"] / figures["tasks"]
        for figures in turns.figures
        if figures["waits"]  # else no task had it in that turn
    ]
    return percentile(ratios, 0.5) if ratios else None
