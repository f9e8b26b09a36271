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
    boot_time,
    delete,
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


FOREVER: Final = 3600.0


GRACE: Final = 0.2


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


@pytest.mark.heavy
async def test_majority_restarted_empty(nodes5: Nodes) -> None:
    """A lock that a majority has forgotten in a restart is lost, and its keys do not come back."""
    often = ExtensionPolicy(every=1 / 15)
    async with quiet(), LockManager(nodes5.urls, ttl=15.0, extension=often) as manager:
        restarted = nodes5.urls[:3]
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("forgotten") as lease:
                await extended(lease, 1)
                await asyncio.gather(*(nodes5.restart(i) for i in range(3)))
                while True:
                    assert keys(restarted) == {}
                    await asyncio.sleep(0.01)
        assert lost.value.reason is LossReason.REFUSED
        await all_up(manager)
        assert keys(nodes5.urls) == {}
        for url in restarted:
            assert ask(url, "DBSIZE") == 1, "an incarnation record"
            assert "cmdstat_del" not in ask(url, "INFO", "commandstats"), (
                "the release found nothing to delete"
            )


@pytest.mark.heavy
@pytest.mark.parametrize("frozen", [[0, 1, 2], [0, 1, 2, 3, 4]])
async def test_majority_frozen(nodes5: Nodes, frozen: list[int]) -> None:
    """When a majority falls silent the body is cancelled before the validity, and so the ttl, has ended."""
    policy = ExtensionPolicy(grace=GRACE)
    async with quiet(), LockManager(nodes5.urls, ttl=1.6, extension=policy) as manager:
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("frozen") as lease:
                await extended(lease, 1)
                strike(nodes5, "frozen", *frozen)
                last_moment = boot_time() + 1.6  # it cannot have been extended after this
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    cancelled_at = boot_time()
                    assert (lease.held, lease.lost.is_set()) == (True, True), "clean-up is inside the lock"
        assert cancelled_at < lease.valid_until < last_moment
        assert lost.value.reason is LossReason.EXPIRED
        silent = [vote for vote in lost.value.votes if vote.vote is Vote.SILENT]
        assert len(silent) >= 3
        assert all(vote.reason for vote in silent)
        for i in frozen:
            nodes5.resume(i)
        await all_up(manager)
    assert keys(nodes5.urls) == {}


@pytest.mark.parametrize("deleted", [[1, 3, 4], pytest.param([0, 1, 2, 3, 4], marks=pytest.mark.heavy)])
async def test_key_deleted_on_a_majority(shared_nodes: Nodes, deleted: list[int]) -> None:
    """The body is cancelled within one extension interval after a majority has lost the key."""
    ttl, every = 8.0, 0.1
    policy = ExtensionPolicy(every=every, grace=GRACE)
    async with quiet(), LockManager(shared_nodes.urls, ttl=ttl, extension=policy) as manager:
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("deleted") as lease:
                await extended(lease, 1)
                delete(shared_nodes, deleted, "redlock:deleted")
                began = boot_time()
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    cancelled_at = boot_time()
                    assert (lease.held, lease.lost.is_set()) == (False, True)
        assert cancelled_at - began <= every * ttl + ALLOWANCE
        assert cancelled_at < lease.valid_until, "the clock alone would have ended it"
        assert lost.value.reason is LossReason.REFUSED
        assert sum(vote.vote is Vote.REFUSED for vote in lost.value.votes) >= 3
    assert keys(shared_nodes.urls) == {}
