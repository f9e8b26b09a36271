"""The façade for threads as users write it.  Never run: ``mypy --strict`` reads it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import assert_type

import aioredlock_ng as ng
from aioredlock_ng import sync


def use() -> None:
    """A block under a lock."""
    with sync.SyncLockManager(["redis://a", "redis://b"], ttl=5, holder="cron-1") as manager:
        assert_type((manager, manager.manager), tuple[sync.SyncLockManager, ng.LockManager])
        with manager.lock("job", ttl=timedelta(seconds=30), blocking_timeout=5) as lease:
            assert_type((lease, lease.held, lease.remaining), tuple[sync.SyncLease, bool, float])
            assert_type((lease.fence, lease.lost), tuple[int, threading.Event])
            assert_type((lease.votes, lease.extensions), tuple[tuple[ng.NodeVote, ...], int])
            assert_type(lease.lease, ng.Lease)
            lease.check()
            lease.extend()
            lease.extend(60)
            lease.extend(timedelta(seconds=60))


def fences(some: bool) -> None:
    """A fence is an int, with every manager: without one the access raises."""
    with sync.SyncLockManager.from_env(fencing=some).lock("x") as lease:
        assert_type(lease.fence, int)


def by_hand(manager: sync.SyncLockManager) -> None:
    """A lock is a description; leases of `acquire` are released by hand."""
    lock = manager.lock("one", "two", blocking=False, label="pair")
    assert_type(lock, sync.SyncLock)
    assert_type(lock.acquire(), sync.SyncLease)
    lease = lock.try_acquire()
    assert_type(lease, sync.SyncLease | None)
    if lease is not None:
        assert_type(lease.release(), ng.ReleaseReport)
    manager.close()


def semaphores(manager: sync.SyncLockManager) -> None:
    """A number of holders at once."""
    pool = manager.semaphore("gpu", permits=4, ttl=5)
    assert_type(pool, sync.SyncLock)
    with pool as lease:
        assert_type(lease.slot, int)
    with manager.fair_semaphore("gpu", permits=4, weight=2) as leases:
        assert_type(leases, tuple[sync.SyncLease, ...])


def fair_locks(manager: sync.SyncLockManager) -> None:
    """First come, first served, and the line."""
    assert_type(manager.lock("printer", fair=True), sync.SyncLock)
    assert_type(manager.queue("printer"), ng.QueueInspection)


def read_and_write(manager: sync.SyncLockManager) -> None:
    """A read-write lock."""
    lock = manager.rwlock("a", "b", ttl=5, reentrant=True)
    assert_type(lock, sync.SyncReadWriteLock)
    with lock.read() as before:
        assert_type(before.mode, ng.Mode | None)
    with lock.write(since=before) as lease:
        assert_type((lease, lease.unchanged), tuple[sync.SyncLease, bool | None])
        lease.downgrade()


def elect(manager: sync.SyncLockManager) -> None:
    """The election of a leader."""
    election = manager.election("scheduler", ttl=5, holder="node-1", extension=ng.ExtensionPolicy(grace=0.1))
    assert_type(election, sync.SyncElection)
    assert_type(election.campaign(), sync.SyncCampaign)
    assert_type(election.leader(), ng.Leader | None)
    for leader in election.observe():
        assert_type(leader, ng.Leader | ng.LeaderUnknown | None)
    with election.campaign() as leadership:
        assert_type(leadership, sync.SyncLeadership)
        assert_type((leadership.name, leadership.term, leadership.holder), tuple[str, int, str])
        assert_type((leadership.held, leadership.remaining), tuple[bool, float])
        assert_type(leadership.lost, threading.Event)
        leadership.check()
        assert_type(leadership.resign(), ng.ReleaseReport)
    election.run(lambda leadership: leadership.check())


def look(manager: sync.SyncLockManager) -> None:
    """The methods of a `LockManager` for administrators, without ``await``."""
    assert_type(manager.inspect("a"), tuple[ng.NodeInspection, ...])
    assert_type(manager.force_release("a"), tuple[ng.NodeInspection, ...])
    assert_type(manager.survey("a", "b", limit=10), ng.Survey)
    assert_type(manager.init(force=True), tuple[ng.NodeInitialisation, ...])
    assert_type(manager.diagnose(), tuple[ng.Finding, ...])
    assert_type(manager.statistics(), ng.ManagerStatistics)
    assert_type((manager.available, manager.unavailable_for), tuple[bool, float])


def decorated() -> None:
    """A function under a lock keeps its signature."""
    manager = sync.SyncLockManager.from_env(ttl=5)
    assert_type(manager, sync.SyncLockManager)

    @manager.locked("report:{customer}", ttl=60, at_least=5, reentrant=True)
    @manager.locked("printer", fair=True)
    def report(customer: int, *, full: bool = False) -> str:
        return f"{customer} {full}"

    @manager.locked("a:{x}", "b:{x}", blocking_timeout=1, otherwise=None)
    def pay(x: int) -> str:
        return f"{x}"

    assert_type((report(1, full=True), pay(1)), tuple[str, str | None])
    assert_type(manager.locked("report:{customer}", mode="read")(report)(1), str)
