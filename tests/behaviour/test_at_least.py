"""Names that stay taken for a while, on real servers (R34)."""

from __future__ import annotations

import time

import pytest

from aioredlock_ng import LockManager, ReleaseOutcome
from tests.behaviour.tools import PATIENCE, no_key_left, quiet
from tests.servers import Nodes, ask

AT_LEAST = 1.0


@pytest.mark.heavy
async def test_the_name_stays_taken_until_its_time(shared_nodes: Nodes) -> None:
    """Another process that waits for it gets it then, though the keys would have lived for a minute."""
    urls = shared_nodes.urls
    async with quiet(), LockManager(urls) as manager, LockManager(urls) as other:
        asked_at = time.monotonic()
        lease = await manager.lock("job", ttl=60, at_least=AT_LEAST).acquire()
        report = await lease.release()
        assert report.count(ReleaseOutcome.KEPT) == len(urls)
        assert {node.kind for node in await other.inspect("job")} <= {"kept", None}
        assert all(ask(url, "PTTL", "redlock:job") <= AT_LEAST * 1000 for url in urls)
        async with other.lock("job", blocking_timeout=PATIENCE):
            assert time.monotonic() - asked_at >= AT_LEAST
    await no_key_left(urls)
