"""Many locks at once cost few connections and few tasks."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from aioredlock_ng import ExtensionPolicy, LockManager
from tests.behaviour.tools import keys, quiet
from tests.servers import Nodes, ask, eventually

LEASES: Final = 2000
KEYS: Final = 2 * LEASES + 1  # of each lease its lock and its counter; and the incarnation record
OWN_CONNECTION: Final = 1  # the one that asks for the list


@pytest.mark.heavy
async def test_thousands_of_leases(shared_nodes: Nodes) -> None:
    """2,000 leases held and extended at once take two connections per node at most, and no tasks."""
    urls = shared_nodes.urls
    before = [connections(url) for url in urls]
    policy = ExtensionPolicy(every=0.1)
    async with quiet(), LockManager(urls, ttl=10.0, extension=policy) as manager:
        idle = len(asyncio.all_tasks())
        leases = await asyncio.gather(*(manager.lock(f"many:{i}").acquire() for i in range(LEASES)))
        assert len(asyncio.all_tasks()) == idle
        assert manager.statistics().held == LEASES
        await eventually(lambda: ask(urls[0], "DBSIZE") == KEYS, what="all keys are there")
        most_connections = most_tasks = 0
        while min(lease.extensions for lease in leases) < 2:
            await asyncio.sleep(0.05)
            most_connections = max(connections(url) - old for url, old in zip(urls, before, strict=True))
            most_tasks = max(most_tasks, len(asyncio.all_tasks()))
            for lease in leases:
                lease.check()
        assert 1 <= most_connections <= 2
        assert most_tasks <= idle + 1
        await asyncio.gather(*(lease.release() for lease in leases))
    assert keys(urls) == {}


def connections(url: str) -> int:
    """Return how many clients a server has, beside the one that asks."""
    return len(ask(url, "CLIENT LIST")) - OWN_CONNECTION
