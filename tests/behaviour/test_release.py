"""After the release nothing is sent, whatever else was going on (rule R6)."""

from __future__ import annotations

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng import ReleaseOutcome as Outcome
from tests.behaviour.tools import all_up, keys, quiet
from tests.servers import Nodes, eventually, kill_connections


async def test_releases_that_a_node_missed_are_made_up_for(nodes3: Nodes) -> None:
    """A node that is frozen during the release gives the key up when it goes on; the report says so."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        lease = await manager.lock("missed", ttl=60).acquire()
        await eventually(lambda: len(keys(nodes3.urls)) == 3, what="all have it")
        nodes3.pause(0)
        report = await lease.release()
        assert [node.outcome for node in report.nodes] == [Outcome.UNKNOWN, *[Outcome.RELEASED] * 2]
        assert await lease.release() == report
        nodes3.resume(0)
        await eventually(lambda: not keys(nodes3.urls), what="the key is gone")
        await eventually(
            lambda: not any(node.in_flight + node.pending_releases for node in manager.statistics().nodes)
        )
        assert (await lease.release()).count(Outcome.RELEASED) == 3


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
