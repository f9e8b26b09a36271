"""The façade for threads as users write it.  Never run: ``mypy --strict`` reads it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import assert_type

from aioredlock_ng import (
    ExtensionPolicy,
    Finding,
    Leader,
    LeaderUnknown,
    Lease,
    LockManager,
    ManagerStatistics,
    Mode,
    NodeInitialisation,
    NodeInspection,
    NodeVote,
    QueueInspection,
    ReleaseReport,
    Survey,
)
from aioredlock_ng.sync import (
    SyncCampaign,
    SyncElection,
    SyncLeadership,
    SyncLease,
    SyncLock,
    SyncLockManager,
    SyncReadWriteLock,
)


def use() -> None:
    """A block under a lock."""
    with SyncLockManager(["redis://a", "redis://b"], ttl=5, holder="cron-1") as manager:
        assert_type(manager, SyncLockManager[int])
        assert_type(manager.manager, LockManager)
        with manager.lock("job", ttl=timedelta(seconds=30), blocking_timeout=5) as lease:
            assert_type(lease, SyncLease[int])
            assert_type(lease.held, bool)
            assert_type(lease.remaining, float)
            assert_type(lease.fence, int)
            assert_type(lease.lost, threading.Event)
            assert_type(lease.votes, tuple[NodeVote, ...])
            assert_type(lease.extensions, int)
            assert_type(lease.lease, Lease)
            lease.check()
            lease.extend()
            lease.extend(60)
            lease.extend(timedelta(seconds=60))


def fences(some: bool) -> None:
    """Without fencing there are none."""
    with SyncLockManager(["redis://a"], fencing=False).lock("x") as lease:
        assert_type(lease.fence, None)
    assert_type(SyncLockManager.from_env(fencing=some), SyncLockManager[int | None])


def by_hand(manager: SyncLockManager) -> None:
    """A lock is a description; leases of `acquire` are released by hand."""
    lock = manager.lock("one", "two", blocking=False, label="pair")
    assert_type(lock, SyncLock)
    assert_type(lock.acquire(), SyncLease)
    lease = lock.try_acquire()
    assert_type(lease, SyncLease | None)
    if lease is not None:
        assert_type(lease.release(), ReleaseReport)
    manager.close()


def semaphores(manager: SyncLockManager) -> None:
    """So many at once."""
    pool = manager.semaphore("gpu", permits=4, ttl=5)
    assert_type(pool, SyncLock[int, int])
    with pool as lease:
        assert_type(lease.slot, int)


def fair_locks(manager: SyncLockManager) -> None:
    """First come, first served, and the line."""
    assert_type(manager.lock("printer", fair=True), SyncLock)
    assert_type(manager.queue("printer"), QueueInspection)


def read_and_write(manager: SyncLockManager) -> None:
    """A read-write lock."""
    lock = manager.rwlock("a", "b", ttl=5, reentrant=True)
    assert_type(lock, SyncReadWriteLock)
    with lock.read() as before:
        assert_type(before.mode, Mode | None)
    with lock.write(since=before) as lease:
        assert_type(lease, SyncLease[int])
        assert_type(lease.unchanged, bool | None)
        lease.downgrade()


def elect(manager: SyncLockManager) -> None:
    """The election of a leader."""
    election = manager.election("scheduler", ttl=5, holder="node-1", extension=ExtensionPolicy(grace=0.1))
    assert_type(election, SyncElection)
    assert_type(election.campaign(), SyncCampaign)
    assert_type(election.leader(), Leader | None)
    for leader in election.observe():
        assert_type(leader, Leader | LeaderUnknown | None)
    with election.campaign() as leadership:
        assert_type(leadership, SyncLeadership)
        assert_type((leadership.name, leadership.term, leadership.holder), tuple[str, int, str])
        assert_type((leadership.held, leadership.remaining), tuple[bool, float])
        assert_type(leadership.lost, threading.Event)
        leadership.check()
        assert_type(leadership.resign(), ReleaseReport)
    election.run(lambda leadership: leadership.check())


def look(manager: SyncLockManager) -> None:
    """What a `LockManager` tells and does, without ``await``."""
    assert_type(manager.inspect("a"), tuple[NodeInspection, ...])
    assert_type(manager.force_release("a"), tuple[NodeInspection, ...])
    assert_type(manager.survey("a", "b", limit=10), Survey)
    assert_type(manager.init(force=True), tuple[NodeInitialisation, ...])
    assert_type(manager.diagnose(), tuple[Finding, ...])
    assert_type(manager.statistics(), ManagerStatistics)
    assert_type(manager.available, bool)
    assert_type(manager.unavailable_for, float)


def decorated() -> None:
    """A function under a lock keeps its signature."""
    manager = SyncLockManager.from_env(ttl=5)
    assert_type(manager, SyncLockManager[int])

    @manager.locked("report:{customer}", ttl=60, at_least=5, reentrant=True)
    @manager.locked("printer", fair=True)
    def report(customer: int, *, full: bool = False) -> str:
        return f"{customer} {full}"

    assert_type(report(1, full=True), str)
    assert_type(manager.locked("report:{customer}", mode="read")(report)(1), str)
