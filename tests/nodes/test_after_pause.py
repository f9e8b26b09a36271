"""A process that stood still, over real connections which the peer has forgotten meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from redis.asyncio import Redis

from aioredlock_ng import LockManager
from aioredlock_ng._clock import SystemClock
from tests.faults.chaos_proxy import proxied
from tests.nodes.tools import up
from tests.servers import eventually

POOLED = 16
"""Connections that lie idle in a client's pool: a call that met one after the other would be late."""


class Leaping:
    """A clock that goes on while everything else stands still."""

    ahead = 0.0

    def now(self) -> float:
        """Return seconds since some moment."""
        return SystemClock.now() + self.ahead


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["url", "client"])
async def test_forgotten_connections_are_made_again(nodes3, how, caplog):
    """Both by URL and through a client, whose own time limits would be minutes here."""
    async with contextlib.AsyncExitStack() as stack:
        proxies = await stack.enter_async_context(proxied(nodes3.urls))
        clients: list[Redis] = []
        nodes: list[str | Redis] = [proxy.url for proxy in proxies]
        if how == "client":
            clients = [Redis.from_url(proxy.url, socket_timeout=120) for proxy in proxies]
            for client in clients:
                stack.push_async_callback(client.aclose)
            nodes = [*clients]
        clock = Leaping()
        manager = LockManager(nodes, clock=clock, connect_timeout=60.0)
        await stack.enter_async_context(manager)
        await up(manager)
        for client in clients:
            await asyncio.gather(*(client.ping() for _ in range(POOLED)))
        for proxy in proxies:
            proxy.half_open()
        clock.ahead = 600.0
        async with manager.lock("res", blocking_timeout=30) as lease:
            assert lease.held
        if how == "url":
            assert "stood still for 60" in caplog.text
        await eventually(lambda: all(proxy.connections < POOLED for proxy in proxies))
