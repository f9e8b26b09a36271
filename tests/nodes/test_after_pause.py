"""A process that stood still, over real connections which the peer has forgotten meanwhile."""

from __future__ import annotations

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._clock import SystemClock
from tests.faults.chaos_proxy import proxied
from tests.nodes.tools import up


class Leaping:
    """A clock that goes on while everything else stands still."""

    ahead = 0.0

    def now(self) -> float:
        """Return seconds since some moment."""
        return SystemClock.now() + self.ahead


@pytest.mark.heavy
async def test_forgotten_connections_are_made_again(nodes3, caplog):
    """At once: the calls of now have no time for the heartbeats of an ordinary silence."""
    clock = Leaping()
    async with (
        proxied(nodes3.urls) as proxies,
        LockManager([proxy.url for proxy in proxies], clock=clock, connect_timeout=60.0) as manager,
    ):
        await up(manager)
        for proxy in proxies:
            proxy.half_open()
        clock.ahead = 600.0
        async with manager.lock("res", blocking_timeout=30) as lease:
            assert lease.held
        assert "stood still for 60" in caplog.text
