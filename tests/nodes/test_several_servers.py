"""A name that leads to different servers from one connection to the next: noticed, and reported (A4)."""

from __future__ import annotations

import logging

import pytest

from aioredlock_ng import LockManager, NodeState
from aioredlock_ng._core.quorum_view import SEVERAL_SERVERS
from tests.faults.chaos_proxy import ChaosProxy, proxied
from tests.nodes.tools import state
from tests.servers import eventually


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of it."""
    return [one.getMessage() for one in caplog.records if SEVERAL_SERVERS in one.getMessage()]


async def reconnect(manager: LockManager, balancer: ChaosProxy) -> None:
    """Drop all connections, and wait for new ones."""
    before = balancer.accepted
    balancer.reset()
    await eventually(lambda: balancer.accepted > before and state(manager) is not NodeState.DOWN)
    await manager._life.nodes[0].greet()


async def test_a_server_that_returns_behind_a_name_is_told_once(nodes5, caplog):
    """Another server may be a failover; the first one again is none."""
    caplog.set_level(logging.WARNING)
    async with proxied([",".join(nodes5.urls[:2])]) as (balancer,):
        manager = LockManager(
            [balancer.url, *nodes5.urls[2:4]], prefix="spread:", node_timeout=1.0, connect_timeout=10.0
        )
        async with manager:
            await reconnect(manager, balancer)
            assert told(caplog) == []
            await reconnect(manager, balancer)
            await eventually(lambda: told(caplog))
            await reconnect(manager, balancer)
            await reconnect(manager, balancer)
    (message,) = told(caplog)
    assert balancer.url in message
    assert "give each node the address of one server" in message
