"""A fleet of processes on virtual time, in small: what `benchmarks.fleet` measures."""

from __future__ import annotations

import pytest

from aioredlock_ng.testing import SimLoop
from benchmarks import fleet


@pytest.mark.parametrize(("processes", "leases"), [(2, 10), (12, 24)])
def test_a_small_fleet(processes: int, leases: int) -> None:
    """No lease is lost, each is extended every third of its ttl, and what grows is what should."""
    row = SimLoop.run(fleet.measure(processes, leases, seconds=fleet.TTL))
    assert (row["leases"], row["lost"]) == (leases, 0)
    assert row["extensions_per_s"] == pytest.approx(3 * leases / fleet.TTL, rel=0.1)
    assert row["heartbeats_per_node_and_s"] == pytest.approx(2 * processes, rel=0.1)
    assert row["requests_per_node_and_s"] <= row["heartbeats_per_node_and_s"] + row["extensions_per_s"]
    assert row["tasks_per_process"] == 2 + fleet.NODES
    assert row["least_validity_s"] > fleet.TTL / 2
    assert row["handoff_ms"] < 10 * fleet.LATENCY * 1e3
    assert row["bytes_per_lease"] > 1000
