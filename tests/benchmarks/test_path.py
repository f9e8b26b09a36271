"""What of the package one uncontended acquire goes through stays within limits."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockManager
from benchmarks import path
from benchmarks.cycles import IN_TURN, ONCE


@pytest.mark.parametrize("names", [ONCE, IN_TURN])
@pytest.mark.parametrize("mode", path.MODES)
async def test_a_cycle_touches_so_many_files_and_functions_at_most(shared_nodes, mode, names):
    """An acquire that nothing contends with keeps to its limits, and with its release to that of calls."""
    taken = await path.take(shared_nodes.urls, mode, names)
    way = path.typical(taken.acquires)
    files, functions = path.LIMITS[mode]
    assert way.files <= files, path.listing(taken.acquires)
    assert way.functions <= functions, path.listing(taken.acquires)
    assert path.typical(taken.cycles).calls <= path.CALL_LIMITS[mode], path.listing(taken.cycles)


async def test_only_the_package_counts():
    """Files and functions of it once, calls each time; not what is outside of it, or comes later."""
    with path.noted() as steps:
        path.way_of([])
        LockManager(["redis://127.0.0.1:1"])
        await asyncio.sleep(0)
    counted = list(steps)
    LockManager(["redis://127.0.0.1:1"])
    assert steps == counted
    assert ("_manager.py", "LockManager.__init__") in steps
    assert {file for file, _ in steps if not (path.SOURCE / file).is_file()} == set()
    steps = [("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f")]
    assert path.way_of(steps) == path.Way(files=2, functions=3, calls=4, changes=2)
