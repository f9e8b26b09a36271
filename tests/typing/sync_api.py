"""The façade for threads as users write it.  Never run: ``mypy --strict`` reads it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from aioredlock_ng import Lease, LockManager, ReleaseReport
from aioredlock_ng.sync import SyncLease, SyncLock, SyncLockManager


def use() -> None:
    """A block under a lock."""
    with SyncLockManager(["redis://a", "redis://b"], ttl=5, holder="cron-1") as manager:
        assert_type(manager, SyncLockManager)
        assert_type(manager.manager, LockManager)
        with manager.lock("job", ttl=timedelta(seconds=30), blocking_timeout=5) as lease:
            assert_type(lease, SyncLease)
            assert_type(lease.held, bool)
            assert_type(lease.remaining, float)
            assert_type(lease.lease, Lease)
            lease.check()
            lease.extend()
            lease.extend(60)


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
