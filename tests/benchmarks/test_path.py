"""What of the package one uncontended acquire goes through stays within limits."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from aioredlock_ng import LockManager
from benchmarks import path
from benchmarks.cycles import IN_TURN, ONCE
from benchmarks.report import Report


@pytest.mark.parametrize("names", [ONCE, IN_TURN])
@pytest.mark.parametrize("mode", path.MODES)
async def test_an_acquire_touches_so_many_files_and_functions_at_most(shared_nodes, mode, names):
    """An acquire that nothing contends with keeps to its limits of files and functions."""
    taken = await path.take(shared_nodes.urls, mode, names)
    way = path.typical(taken.acquires)
    files, functions = path.LIMITS[mode]
    assert way.files <= files, path.listing(taken.acquires)
    assert way.functions <= functions, path.listing(taken.acquires)


@pytest.mark.parametrize("names", [ONCE, IN_TURN])
@pytest.mark.parametrize("mode", path.MODES)
async def test_a_cycle_makes_so_many_calls_at_most(shared_nodes, mode, names):
    """An acquire and its release, which nothing contends with, keep to their limit of calls."""
    taken = await path.take(shared_nodes.urls, mode, names)
    assert path.typical(taken.cycles).calls <= path.CALL_LIMITS[mode], path.listing(taken.cycles)


async def test_only_the_package_counts():
    """Calls outside of the package, generated code and what comes later are not counted."""
    with path.noted() as steps:
        path.way_of([])
        LockManager(["redis://127.0.0.1:1"])
        await asyncio.sleep(0)
    counted = list(steps)
    LockManager(["redis://127.0.0.1:1"])
    assert steps == counted
    assert ("_manager.py", "LockManager.__init__") in steps
    assert {file for file, _ in steps if not (path.SOURCE / file).is_file()} == set()


def test_what_is_counted():
    """Files and functions count once, calls each time, changes between one call and the next."""
    steps = [("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f")]
    assert path.way_of(steps) == path.Way(files=2, functions=3, calls=4, changes=2)
    assert path.way_of([]) == path.Way(files=0, functions=0, calls=0, changes=0)


async def test_the_table_has_a_line_for_each_mode_and_step(shared_nodes):
    """The report tells acquire and release apart, fenced and plain, names used once and in turn."""
    report = Report()
    await path.ask(report, shared_nodes.urls)
    lines = {(row["mode"], row["names"], row["step"]): row for row in report.tables[path.TABLE]}
    assert set(lines) == set(product(path.MODES, (ONCE, IN_TURN), ("acquire", "release")))
    assert all(row["files"] <= row["functions"] <= row["calls"] for row in lines.values())
    assert all(row["calls_per_cycle"] > 0 for row in report.tables[path.CALLS])
    assert len(report.tables[path.CALLS]) == len(path.MODES) * 2
