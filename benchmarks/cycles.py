"""What several questions do alike: turns of cycles without contention, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.driver import Figures, Taken, Turns, Worker
from benchmarks.report import Row, percentile

BASES: Final = ("floor", "floor-c", "aioredlock")
"""What the others are compared with, in the columns ``to_…``."""

ONCE: Final = "once"
"""Each cycle has a name that was never used before, as that of an order or a job has: the usual case."""

IN_TURN: Final = "in turn"
"""A few names are used again and again."""

NAMES: Final = 200
"""Names that one task uses in turn: none is used twice within the 25 ms for which a name may rest."""

NAMES_OF_EACH: Final = 16
"""The same for each of many tasks."""

SLOWEST: Final = 1000
"""Cycles per second of many tasks, on whatever machine, of a peer that is asked for a number of them."""

_turns = count()


def new_prefix(peer: str) -> str:
    """Return what the names of one turn begin with, so that no other turn has had one of them."""
    return f"{peer}:{next(_turns):04}"


async def latency_turn(
    bench: Bench, peer: str, worker: Worker, names: str = ONCE, seconds: float = 0.5
) -> Figures:
    """Let one task do a few cycles."""
    settings = bench.settings
    order: Row = {"prefix": new_prefix(peer), "count": settings.cycles, "seconds": seconds}
    if names == IN_TURN:
        order |= {"prefix": peer, "first": next(_turns) * settings.cycles, "names": NAMES}
    return await worker.do("latency", limit=seconds + settings.limit, **order)


async def throughput_turn(
    bench: Bench,
    peer: str,
    worker: Worker,
    tasks: int,
    names: str = ONCE,
    *,
    trip: float = 0.0,
    least: int = 0,
) -> Figures:
    """Let many tasks do cycles for a moment, and `least` each; `trip`: how far the nodes are."""
    seconds = bench.settings.slice + 4 * trip
    limit = seconds + 2 * bench.settings.limit + least * tasks / SLOWEST
    order: Row = {"prefix": new_prefix(peer), "tasks": tasks, "seconds": seconds, "spread": 2 * trip}
    if names == IN_TURN:
        order |= {"prefix": peer, "names": max(NAMES_OF_EACH, NAMES // tasks)}
    if least:
        order |= {"least": least}
    return await worker.do("throughput", limit=limit, **order)


def p50(key: str) -> Callable[[Figures], float]:
    """Return what reads a median out of one turn."""
    return lambda figures: percentile(figures[key], 0.5)


def rate(figures: Figures) -> float:
    """Read the cycles per second of one turn."""
    return float(figures["rate"])


def cpu(figures: Figures) -> float:
    """Read the worker's CPU per cycle of one turn, in microseconds."""
    return float(figures["cpu"] * 1e6)


def microseconds(turns: Turns, key: str, share: float) -> float | None:
    """Return a percentile of what all turns took."""
    values = turns.all(key)
    return percentile(values, share) * 1e6 if values else None


def median(turns: Turns, read: Callable[[Figures], float]) -> float | None:
    """Return the median of the turns."""
    return percentile(turns.each(read), 0.5) if turns.figures else None


def compared(
    taken: Taken[Any], key: Any, read: Callable[[Figures], float], bases: Sequence[Any] = BASES
) -> Row:
    """Return the columns that compare with the bases: medians of the ratios turn by turn."""
    return {f"to_{base}": taken[key].to(taken.get(base), read) for base in bases if taken.get(base)}


def add_latencies(
    bench: Bench,
    table: str,
    taken: Taken[Any],
    peers: Iterable[str],
    *,
    bases: Sequence[str] = BASES,
    **case: Any,
) -> None:
    """Add a row of latencies per peer."""
    for peer in peers:
        turns = taken[peer]
        bench.report.add(
            table,
            loop=bench.loop,
            **case,
            peer=peer,
            p50_us=microseconds(turns, "cycles", 0.5),
            cpu_us_per_cycle=median(turns, cpu),
            p99_us=microseconds(turns, "cycles", 0.99),
            acquire_p50_us=microseconds(turns, "acquires", 0.5),
            **compared(taken, peer, p50("cycles"), bases),
            cycles=len(turns.all("cycles")),
            trouble=turns.trouble,
        )


def add_throughput(
    bench: Bench,
    table: str,
    taken: Taken[Any],
    peers: Iterable[str],
    *,
    bases: Sequence[str] = BASES,
    **case: Any,
) -> None:
    """Add a row of rates per peer."""
    for peer in peers:
        turns = taken[peer]
        bench.report.add(
            table,
            loop=bench.loop,
            **case,
            peer=peer,
            cycles_per_s=median(turns, rate),
            **compared(taken, peer, rate, bases),
            cpu_us_per_cycle=median(turns, cpu),
            acquire_p50_us=microseconds(turns, "acquires", 0.5),
            acquire_p99_us=microseconds(turns, "acquires", 0.99),
            turns=len(turns.figures),
            trouble=turns.trouble,
        )
