"""Masters that are a Redis Cluster each, with all slots: without sentinels any prefix will do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioredlock_ng import LockManager, LockNotAcquiredError
from aioredlock_ng.testing import LocalNodes
from tests.clusters import OPTIONS, Cluster
from tests.servers import lock_keys

MakeNodes = Callable[..., LocalNodes]


@pytest.mark.heavy
async def test_names_in_different_slots_are_asked_for_one_by_one(make_nodes: MakeNodes) -> None:
    """Two keys without a common hash tag cannot be in one script there; each lock alone is one key (R42)."""
    nodes = make_nodes(1, options=OPTIONS)
    Cluster(nodes, 1).form()
    (url,) = nodes.urls
    async with LockManager([url], fencing=False, restart_quarantine=0, node_timeout=2.0) as manager:
        leases = await asyncio.gather(*(manager.lock(f"n{i}").acquire() for i in range(20)))
        await asyncio.gather(*(lease.extend(60) for lease in leases))
        await asyncio.gather(*(lease.release() for lease in leases))
        assert lock_keys(url) == []
        assert manager.statistics().nodes[0].owed == 0
        with pytest.raises(LockNotAcquiredError, match="CROSSSLOT"):
            await manager.lock("a", "b", blocking_timeout=0).acquire()
