"""What of the package one uncontended acquire goes through stays within limits."""

from __future__ import annotations

import asyncio
import os

import pytest

from aioredlock_ng import LockManager
from benchmarks import path
from benchmarks.cycles import IN_TURN, ONCE


@pytest.mark.parametrize("names", [ONCE, IN_TURN])
@pytest.mark.parametrize("mode", path.MODES)
async def test_a_cycle_touches_so_many_files_and_functions_at_most(shared_nodes, mode, names):
    """An acquire that nothing contends with keeps to its limits, and with its release to those of a cycle."""
    taken = await path.take(shared_nodes.urls, mode, names)
    way = path.typical(taken.acquires)
    files, functions = path.LIMITS[mode]
    assert way.files <= files, path.listing(taken.acquires)
    assert way.functions <= functions, path.listing(taken.acquires)
    found, limits = taken.typical, path.CALL_LIMITS[mode]
    assert {what: count for what, count in found.items() if count > limits.get(what, count)} == {}, found


async def test_what_is_counted():
    """Calls while the notes are entered, each time, by where the function is; reads; new objects."""
    with path.Notes() as notes:
        path.way_of([])
        LockManager(["redis://127.0.0.1:1"])
        os.getpid()
        kept = [{} for _ in range(100)]
        await asyncio.sleep(0)
    counts, steps = notes.counts, path.steps_of(notes.codes)
    LockManager(["redis://127.0.0.1:1"])
    assert notes.counts == counts
    assert ("_manager.py", "LockManager.__init__") in steps
    assert {file for file, _ in steps if not (path.SOURCE / file).is_file()} == set()
    assert counts["package"] == len(steps)
    assert counts["calls"] == counts["package"] + counts["asyncio"] + counts["other"]
    assert counts["asyncio"] >= 3  # sleep, Handle._run, select
    assert counts["getpid"] >= 1
    assert counts["tracked"] >= len(kept)


def test_ways():
    """Files and functions count once, calls each time."""
    steps = [("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f")]
    assert path.way_of(steps) == path.Way(files=2, functions=3, calls=4, changes=2)
