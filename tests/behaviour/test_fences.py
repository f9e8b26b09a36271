"""What fences cost without contention, over real servers (R10)."""

from __future__ import annotations

import pytest

from aioredlock_ng import LockManager
from tests.servers import Nodes

CYCLES = 200


@pytest.mark.parametrize("names", [1, CYCLES])
async def test_nodes_agree_in_one_round_trip(names: int, any_nodes: Nodes) -> None:
    """Nearly always: for one name again and again, and for names that are used for the first time."""
    fences = []
    async with LockManager(any_nodes.urls, node_timeout=1.0) as manager:
        for number in range(CYCLES):
            async with manager.lock(f"name:{number % names}", blocking_timeout=5) as lease:
                fences.append(lease.fence or 0)
        statistics = manager.statistics()
    assert statistics.acquired == CYCLES
    assert statistics.certified >= 0.95 * CYCLES
    assert statistics.certified + statistics.raised == CYCLES
    if names == 1:
        assert fences == sorted(set(fences))
