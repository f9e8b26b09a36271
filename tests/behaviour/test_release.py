"""After the release nothing is sent, whatever else was going on (rule R6)."""

from __future__ import annotations

import pytest

from aioredlock_ng import LockManager
from tests.behaviour.tools import all_up, keys, quiet
from tests.servers import Nodes, eventually, kill_connections


@pytest.mark.heavy
async def test_releases_that_a_lost_connection_took_along_are_made_up_for(nodes3: Nodes) -> None:
    """A release whose connection is killed on its way is sent again on the next one."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        for _ in range(10):
            lease = await manager.lock("killed", ttl=60).acquire()
            await eventually(lambda: len(keys(nodes3.urls)) == 3, what="all have it")
            for url in nodes3.urls:
                kill_connections(url)
            await lease.release()
            await eventually(lambda: not keys(nodes3.urls), what="the key is gone")
            await all_up(manager)
