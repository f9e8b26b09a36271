"""The path of one uncontended acquire through the package stays within limits."""

from __future__ import annotations

import pytest

from benchmarks import path
from benchmarks.cycles import IN_TURN, ONCE


@pytest.mark.parametrize("names", [ONCE, IN_TURN])
@pytest.mark.parametrize("mode", path.MODES)
async def test_a_cycle_touches_few_files_and_functions(shared_nodes, mode, names):
    """An acquire that nothing contends with keeps to its limits, and with its release to those of a cycle."""
    taken = await path.take(shared_nodes.urls, mode, names)
    way = path.typical(taken.acquires)
    files, functions = path.LIMITS[mode]
    assert way.files <= files, path.listing(taken.acquires)
    assert way.functions <= functions, path.listing(taken.acquires)
    found, limits = taken.typical, path.CALL_LIMITS[mode]
    assert {what: count for what, count in found.items() if count > limits.get(what, count)} == {}, found
