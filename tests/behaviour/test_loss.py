"""A lost lock is never silent, and a lock is not lost without need (rules R7, R8, R9)."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, LossReason, Vote
from tests.behaviour.tools import (
    PATIENCE,
    all_up,
    boot_time,
    extended,
    keys,
    quiet,
    strike,
)
from tests.servers import Nodes, ask, kill_connections


async def test_answers_that_come_too_late_do_not_revive(nodes5: Nodes) -> None:
    """Extensions that frozen nodes grant after the deadline do not bring a lease back."""
    async with quiet(), LockManager(nodes5.urls, ttl=1.0) as manager:
        lease = await manager.lock("late").acquire()
        strike(nodes5, "frozen", *range(5))
        await asyncio.wait_for(lease.lost.wait(), PATIENCE)
        extensions = lease.extensions
        for i in range(5):
            nodes5.resume(i)
        await all_up(manager)
        with pytest.raises(LockLostError):
            await lease.extend()
        await asyncio.sleep(max(0.0, lease.valid_until - boot_time()))
        assert not lease.held
        assert lease.extensions == extensions
        await lease.release()


@pytest.mark.heavy
async def test_all_connections_killed(nodes5: Nodes) -> None:
    """A lease survives the loss of every connection, again and again; no other client gets in meanwhile."""
    policy = ExtensionPolicy(every=0.02, max_extensions=None)  # so that extensions meet lost connections
    async with (
        quiet(),
        LockManager(nodes5.urls, ttl=3.0, extension=policy) as manager,
        manager.lock("survivor") as lease,
    ):
        for _ in range(6):
            before = lease.extensions
            for url in nodes5.urls:
                kill_connections(url)
            assert all(ask(url, "SET", "redlock:survivor", "theirs", "NX") is None for url in nodes5.urls)
            await extended(lease, before + 1)
            lease.check()
        await all_up(manager)
        await extended(lease, lease.extensions + 2)
        assert sum(vote.vote is Vote.GRANTED for vote in lease.votes) >= 3
        assert not lease.lost.is_set()
    assert keys(nodes5.urls) == {}


# -- the clock -------------------------------------------------------------------------------------


async def test_a_thread_may_check(shared_nodes: Nodes) -> None:
    """In a body that runs in a thread `check()` raises, too, and leaves the loop's state to the loop."""
    async with LockManager(shared_nodes.urls, ttl=0.5, extension=ExtensionPolicy.off()) as manager:
        lease = await manager.lock("thread").acquire()
        raised: list[LossReason] = []

        def work() -> None:
            while lease.held:
                time.sleep(0.01)
            with pytest.raises(LockLostError) as lost:
                lease.check()
            raised.append(lost.value.reason)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()  # the loop stands still meanwhile: whatever changed, the thread has changed
        assert raised == [LossReason.EXPIRED]
        assert not lease.lost.is_set()
        await asyncio.wait_for(lease.lost.wait(), PATIENCE)
        await lease.release()
