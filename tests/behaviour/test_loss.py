"""A lost lock is never silent, and a lock is not lost without need (rules R7, R8, R9)."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from typing import Any, Final

import pytest

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, LossReason, Vote
from aioredlock_ng.events import LoopStalled, Lost
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
)
from tests.servers import Nodes, ask, eventually, kill_connections

FOREVER: Final = 3600.0
GRACE: Final = 0.2


@pytest.mark.parametrize("deleted", [[1, 3, 4], pytest.param([0, 1, 2, 3, 4], marks=pytest.mark.heavy)])
async def test_key_deleted_on_a_majority(shared_nodes: Nodes, deleted: list[int]) -> None:
    """The body is cancelled within one extension interval after a majority has lost the key."""
    ttl = 8.0
    every = 0.1
    policy = ExtensionPolicy(every=every, grace=GRACE)
    async with quiet(), LockManager(shared_nodes.urls, ttl=ttl, extension=policy) as manager:
        cancelled_at = 0.0
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("deleted") as lease:
                await extended(lease, 1)
                delete(shared_nodes, deleted, "redlock:deleted")
                began = boot_time()
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    cancelled_at = boot_time()
                    assert not lease.held
                    assert lease.lost.is_set()
        assert cancelled_at - began <= every * ttl + ALLOWANCE
        assert cancelled_at < lease.valid_until, "the clock alone would have ended it"
        assert lost.value.reason is LossReason.REFUSED
        assert sum(vote.vote is Vote.REFUSED for vote in lost.value.votes) >= 3
    assert keys(shared_nodes.urls) == {}


@pytest.mark.parametrize("deleted", [pytest.param([0], marks=pytest.mark.heavy), [1, 4]])
async def test_key_deleted_on_a_minority(shared_nodes: Nodes, deleted: list[int]) -> None:
    """A minority that lost the key changes nothing, and gets the key back with the next extension."""
    async with quiet(), LockManager(shared_nodes.urls, ttl=1.0) as manager, manager.lock("deleted") as lease:
        delete(shared_nodes, deleted, "redlock:deleted")
        await extended(lease, 1)
        await eventually(lambda: len(keys(shared_nodes.urls)) == 5, what="the keys are back")
        # What was topped up is as good as the rest: now the other nodes may lose theirs.
        delete(shared_nodes, [2, 3], "redlock:deleted")
        await extended(lease, lease.extensions + 2)
        lease.check()
    assert keys(shared_nodes.urls) == {}


async def test_key_taken_by_another_client(shared_nodes: Nodes) -> None:
    """A lock that another client has on a majority is lost, and neither extended nor released there."""
    async with quiet(), LockManager(shared_nodes.urls, ttl=1.0) as manager:
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("stolen"):
                for url in shared_nodes.urls[:3]:
                    ask(url, "SET", "redlock:stolen", "theirs", "PX", 30_000)
                await asyncio.sleep(FOREVER)
        assert lost.value.reason is LossReason.REFUSED
        values = [ask(url, "GET", "redlock:stolen") for url in shared_nodes.urls]
        assert values == [b"theirs"] * 3 + [None] * 2


@pytest.mark.heavy
@pytest.mark.parametrize("frozen", [[0, 1, 2], [0, 1, 2, 3, 4]])
async def test_majority_frozen(nodes5: Nodes, frozen: list[int]) -> None:
    """When a majority falls silent the body is cancelled before the validity, and so the ttl, has ended."""
    policy = ExtensionPolicy(grace=GRACE)
    async with quiet(), LockManager(nodes5.urls, ttl=1.6, extension=policy) as manager:
        cancelled_at = 0.0
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("frozen") as lease:
                await extended(lease, 1)
                for i in frozen:
                    nodes5.pause(i)
                last_moment = boot_time() + 1.6  # it cannot have been extended after this
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    cancelled_at = boot_time()
                    assert lease.held, "its clean-up still runs inside the lock"
                    assert lease.lost.is_set()
        assert cancelled_at < lease.valid_until < last_moment
        assert lost.value.reason is LossReason.EXPIRED
        silent = [vote for vote in lost.value.votes if vote.vote is Vote.SILENT]
        assert len(silent) >= 3
        assert all(vote.reason for vote in silent)
        for i in frozen:
            nodes5.resume(i)
        await all_up(manager)
    assert keys(nodes5.urls) == {}


async def test_answers_that_come_too_late_do_not_revive(nodes5: Nodes) -> None:
    """Extensions that frozen nodes grant after the deadline do not bring a lease back."""
    async with quiet(), LockManager(nodes5.urls, ttl=1.0) as manager:
        lease = await manager.lock("late").acquire()
        for i in range(5):
            nodes5.pause(i)
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
                try:
                    while True:
                        assert keys(restarted) == {}
                        await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    assert keys(restarted) == {}
                    raise
        assert lost.value.reason is LossReason.REFUSED
        assert not lease.held
        await all_up(manager)
        assert keys(nodes5.urls) == {}
        for url in restarted:
            calls = ask(url, "INFO", "commandstats")
            assert ask(url, "DBSIZE") == 1, "a sentinel"
            assert "cmdstat_del" not in calls, "the release found nothing to delete"


@pytest.mark.parametrize("on_lost", ["cancel", "raise"])
async def test_what_a_loss_does_to_the_body(shared_nodes: Nodes, on_lost: Any) -> None:
    """With "cancel" the body is cancelled, with "raise" it goes on; both end in `LockLostError`."""
    recorder = Recorder()
    manager = LockManager(shared_nodes.urls, ttl=1.0, on_lost=on_lost, hooks=[recorder])
    async with quiet(), manager:
        ended = False
        with pytest.raises(LockLostError):
            async with manager.lock("body") as lease:
                delete(shared_nodes, range(5), "redlock:body")
                await lease.lost.wait()  # `wait_for` may swallow a cancellation on Python 3.11
                for _ in range(5):
                    await asyncio.sleep(0)
                ended = True
        assert ended is (on_lost == "raise")
        assert [e.reason for e in recorder.events if isinstance(e, Lost)] == [LossReason.REFUSED]


# -- the clock -------------------------------------------------------------------------------------


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
            assert not loose.held
            assert not bound.held
            await asyncio.sleep(0.01)
        assert (loose.extensions, bound.extensions) == extensions
        assert loose.lost.is_set()
        with pytest.raises(LockLostError):
            loose.check()
        await loose.release()
        reports = [event.seconds for event in recorder.events if isinstance(event, LoopStalled)]
        assert stalled - 0.3 <= max(reports) <= stalled + ALLOWANCE
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("aioredlock_ng") and record.levelno >= logging.WARNING
        ]
        lengths = [
            float(number) for line in lines for number in re.findall(r"(\d+\.\d+) s", line) if "loop" in line
        ]
        assert any(abs(length - stalled) <= 0.3 for length in lengths), lines
    assert keys(nodes3.urls) == {}


@pytest.mark.heavy
async def test_a_short_stall_costs_nothing(nodes3: Nodes) -> None:
    """A stall that is shorter than what is left of the validity does not cost the lock."""
    async with quiet(), LockManager(nodes3.urls, ttl=3.0) as manager, manager.lock("short") as lease:
        for _ in range(2):
            time.sleep(1.2)
            await extended(lease, lease.extensions + 1)
            lease.check()


@pytest.mark.parametrize("extensions", [0, 2])
async def test_a_forgotten_lock_ends(shared_nodes: Nodes, extensions: int) -> None:
    """A lock that is not released is extended as often as allowed, then ends and is free for others."""
    ttl = 0.6
    policy = ExtensionPolicy(max_extensions=extensions)
    async with (
        quiet(),
        LockManager(shared_nodes.urls, ttl=ttl, extension=policy) as manager,
        LockManager(shared_nodes.urls) as other,
    ):
        began = boot_time()
        forgotten = await manager.lock("forgotten").acquire()
        lease = await asyncio.wait_for(other.lock("forgotten").acquire(), PATIENCE)
        took = boot_time() - began
        assert took >= ttl * (1 + extensions / 3) - 0.05, "it ended early, or was not extended"
        assert took <= ttl * (2 + extensions / 3) + 1.0
        assert forgotten.extensions == extensions
        assert not forgotten.held
        assert forgotten.lost.is_set()
        expected = LossReason.EXTENSIONS_EXHAUSTED if extensions else LossReason.EXPIRED
        with pytest.raises(LockLostError) as lost:
            forgotten.check()
        assert lost.value.reason is expected
        await forgotten.release()
        lease.check()
        await lease.release()


async def test_a_forgotten_body_is_told(shared_nodes: Nodes) -> None:
    """A body that never ends is cancelled when its lock was extended as often as allowed."""
    policy = ExtensionPolicy(max_extensions=2, grace=GRACE)
    async with quiet(), LockManager(shared_nodes.urls, ttl=0.6, extension=policy) as manager:
        with pytest.raises(LockLostError) as lost:
            async with manager.lock("endless") as lease:
                await asyncio.sleep(FOREVER)
        assert lost.value.reason is LossReason.EXTENSIONS_EXHAUSTED
        assert lease.extensions == 2
    assert keys(shared_nodes.urls) == {}


async def test_a_thread_may_check(shared_nodes: Nodes) -> None:
    """Where the body runs in a thread, `check()` raises as ever, and leaves the loop's state to the loop."""
    async with LockManager(shared_nodes.urls, ttl=0.5, extension=ExtensionPolicy.off()) as manager:
        lease = await manager.lock("thread").acquire()
        raised: list[LossReason] = []

        def work() -> None:
            while lease.held:
                time.sleep(0.01)
            try:
                lease.check()
            except LockLostError as error:
                raised.append(error.reason)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()  # the loop stands still meanwhile: whatever changed, the thread has changed
        assert raised == [LossReason.EXPIRED]
        assert not lease.lost.is_set()
        await asyncio.wait_for(lease.lost.wait(), PATIENCE)
        await lease.release()
