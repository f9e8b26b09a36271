"""Fences and incarnation records of real servers: what makes them doubtful (R10, R12)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aioredlock_ng import Lease, LockManager, NodeState
from aioredlock_ng._core.quarantine import UNKNOWN_IDENTITY, parse
from aioredlock_ng._core.rights import ACL_RIGHTS
from tests.behaviour.tools import all_up
from tests.nodes.tools import becomes, denied_because, state
from tests.servers import ask, eventually, lock_keys, with_rights

QUARANTINE = 1.0
"""Seconds; the ttl of these tests, too."""
SENTINEL = "redlock:{meta}"

RIGHTS = ("~redlock:*", "&redlock:*", *ACL_RIGHTS.split())


def over(nodes: list[Any], **options: Any) -> LockManager:
    """Make a manager with a quarantine of its own."""
    options = {"ttl": QUARANTINE, "restart_quarantine": QUARANTINE, "node_timeout": 0.3} | options
    return LockManager(nodes, **options)


async def granted(manager: LockManager) -> Lease:
    """Take and release a lock."""
    lease = await manager.lock("res", blocking=False).acquire()
    await lease.release()
    return lease


@pytest.fixture
def url(make_nodes):
    """Give the URL of one server for this test alone."""
    return make_nodes(1).urls[0]


@pytest.mark.heavy
async def test_a_user_without_info_gets_an_incarnation_without_identity(url, caplog):
    """One warning says what goes unnoticed then; locks and fences work, and a flush is still noticed."""
    ask(url, "FLUSHALL")
    caplog.set_level(logging.WARNING, logger="aioredlock_ng")
    login = with_rights(url, " ".join([*RIGHTS, "-info"]))
    async with over([login]) as manager:
        await all_up(manager)
        first = await granted(manager)
        assert parse(ask(url, "GET", SENTINEL)).identity == UNKNOWN_IDENTITY
        greeted = manager.statistics().nodes[0].round_trip
        await eventually(lambda: manager.statistics().nodes[0].round_trip != greeted, what="it greets again")
        assert caplog.text.count("it denies INFO") == 1
        ask(url, "FLUSHALL")
        assert await denied_because(manager)
        await becomes(manager, NodeState.QUARANTINED)
        await becomes(manager, NodeState.UP)
        assert (await granted(manager)).fence > first.fence


@pytest.mark.heavy
async def test_a_master_that_was_a_replica_is_quarantined(url):
    """READONLY is no vote; promoted again it has another replication id, so its data may be another's."""
    async with over([url]) as manager:
        await all_up(manager)
        before = (await granted(manager)).fence
        ask(url, "REPLICAOF", "127.0.0.1", "1")
        assert await denied_because(manager)
        await eventually(lambda: state(manager) is not NodeState.UP)
        ask(url, "REPLICAOF", "NO", "ONE")
        loop = asyncio.get_running_loop()
        began = loop.time()
        lease = await manager.lock("res", blocking_timeout=20).acquire()
        assert loop.time() - began >= QUARANTINE
        assert lease.fence > before
        await lease.release()


async def test_a_server_without_memory_still_releases(url):
    """With noeviction an acquire is an error; a release deletes first, and raises what it can."""
    async with over([url], ttl=30, restart_quarantine=60) as manager:
        await all_up(manager)
        lease = await manager.lock("held").acquire()
        ask(url, "DEL", "redlock:fence:{redlock:held}")  # so that the release has something to raise
        ask(url, "CONFIG SET", "maxmemory", "1mb")
        assert "maxmemory" in await denied_because(manager)
        await lease.extend(60)
        (report,) = (await lease.release()).nodes
        assert report.outcome == "released"
        assert lock_keys(url) == []
        ask(url, "CONFIG SET", "maxmemory", "0")
        await granted(manager)
        lease = await manager.lock("kept", ttl=60, at_least=2).acquire()
        ask(url, "CONFIG SET", "maxmemory", "1mb")
        (report,) = (await lease.release()).nodes
        assert report.outcome == "kept"
        assert 0 < ask(url, "PTTL", "redlock:kept") <= 2000


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_forgotten_script_is_sent_with_its_stamp(url, protocol):
    """EVAL carries the record as EVALSHA does: the only node grants, extends and raises at once."""
    async with over([f"{url}?protocol={protocol}"], ttl=30, restart_quarantine=60) as manager:
        await all_up(manager)
        fences = []
        for _ in range(3):
            ask(url, "SCRIPT FLUSH")
            lease = await manager.lock("res", blocking=False).acquire()
            ask(url, "SCRIPT FLUSH")
            await lease.extend(60)
            fences.append(lease.fence)
            ask(url, "SCRIPT FLUSH")
            assert (await lease.release()).nodes[0].outcome == "released"
        assert fences == sorted(set(fences))
