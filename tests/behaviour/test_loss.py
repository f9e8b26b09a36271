# ruff: noqa: PT012 (the body that loses the lock is the point)
"""A lost lock is never silent, and a lock is not lost without need (rules R7, R8, R9)."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from typing import Final

import pytest

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, LossReason, Vote
from aioredlock_ng.events import LoopStalled
from tests.behaviour.tools import (
    ALLOWANCE,
    PATIENCE,
    Recorder,
    all_up,
    extended,
    keys,
    quiet,
)
from tests.servers import Nodes, ask, kill_connections


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


FOREVER: Final = 3600.0


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("every", "stall"), [(1 / 3, 3.0), (0.01, 1.5)], ids=["between extensions", "extensions in flight"]
)
async def test_stalled_loop(
    nodes3: Nodes, caplog: pytest.LogCaptureFixture, every: float, stall: float
) -> None:
    """Blocking code that outlasts the ttl is reported with its length; the lease is lost, and stays lost."""
    recorder = Recorder()
    policy = ExtensionPolicy(every=every, max_extensions=None)
    manager = LockManager(nodes3.urls, ttl=1.0, extension=policy, hooks=[recorder])
    async with quiet(), manager:
        loose = await manager.lock("loose").acquire()
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("bound") as bound:
                await extended(bound, 1)
                await asyncio.sleep(0)
                for lease in (loose, bound):  # nodes that would say yes do not change it
                    for url in nodes3.urls:
                        assert ask(url, "PEXPIRE", f"redlock:{lease.name}", 60_000)
                extensions = loose.extensions, bound.extensions
                began = time.monotonic()
                time.sleep(stall)
                stalled = time.monotonic() - began
                for lease in (loose, bound):
                    assert not lease.held  # without any help of the loop
                await asyncio.sleep(FOREVER)
        assert lost.value.reason is LossReason.EXPIRED
        watched = time.monotonic() + 0.5
        while time.monotonic() < watched:
            assert (loose.held, bound.held) == (False, False)
            await asyncio.sleep(0.01)
        assert (loose.extensions, bound.extensions) == extensions
        assert loose.lost.is_set()
        with pytest.raises(LockLostError):
            loose.check()
        await loose.release()
        reports = [event.seconds for event in recorder.events if isinstance(event, LoopStalled)]
        assert stalled - 0.3 <= max(reports) <= stalled + ALLOWANCE
        lines = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
        lengths = [re.findall(r"(\d+\.\d+) s", line) for line in lines if "loop" in line]
        assert any(abs(float(length) - stalled) <= 0.3 for found in lengths for length in found), lines
    assert keys(nodes3.urls) == {}
