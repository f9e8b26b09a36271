"""Client nodes: a server frozen for longer than a lock lives, and calls that have no owner (R5, R17)."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aioredlock_ng import LockManager
from tests.behaviour.tools import all_up
from tests.servers import ask, eventually

TTL = 2.0
FROZEN = 3.3
"""Seconds: longer than the ttl, counted from the failure of the release behind the failed acquire."""

SOON = 0.65 * TTL
"""Seconds after which the key is gone: a look comes every 0.5 s, and without a release it stays for a ttl."""


def sets(url: str) -> int:
    """Return how many SETs a server has executed."""
    return int(ask(url, "INFO", "commandstats").get("cmdstat_set", {}).get("calls", 0))


@pytest.mark.heavy
async def test_a_freeze_longer_than_the_ttl_leaves_no_key(nodes3):
    """A SET that a frozen server executes when it goes on is undone soon, even when its ttl has passed."""
    url = nodes3.urls[0]
    async with contextlib.AsyncExitStack() as stack:
        clients: list[Redis] = []
        for port in nodes3.ports:
            clients.append(Redis(port=port, socket_timeout=0.3, retry=Retry(NoBackoff(), 0)))
            stack.push_async_callback(clients[-1].aclose)
        manager = await stack.enter_async_context(LockManager(clients, ttl=TTL))
        await all_up(manager)
        async with manager.lock("warm"):
            pass
        # Connections enough: one that has to be made to a frozen server carries no SET.
        await asyncio.gather(*(clients[0].ping() for _ in range(8)))
        before = sets(url)
        nodes3.pause(0)
        stack.callback(nodes3.resume, 0)
        lease = await manager.lock("a").acquire()
        await lease.release()
        await asyncio.sleep(FROZEN)
        nodes3.resume(0)
        thawed = time.monotonic()
        await eventually(lambda: sets(url) > before, within=SOON, what="the SET is executed after all")
        left = thawed + SOON - time.monotonic()
        await eventually(lambda: not ask(url, "EXISTS", "redlock:a"), within=left, what="the key is gone")
        await eventually(lambda: not manager.statistics().nodes[0].owed, what="nothing is owed")
