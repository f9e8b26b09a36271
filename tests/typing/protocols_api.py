"""Code that is typed against protocols: it takes managers, and fakes of the user's own.  Never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, assert_type
from unittest.mock import create_autospec

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.protocols import LeaseLike, LockManagerLike, SyncLockManagerLike
from aioredlock_ng.sync import SyncLease, SyncLockManager


async def pay(locks: LockManagerLike) -> int:
    """Work under a lock."""
    async with locks.lock("invoice", "account", ttl=30, blocking_timeout=5) as lease:
        assert_type(lease, LeaseLike)
        assert_type((lease.names, lease.held, lease.remaining), tuple[tuple[str, ...], bool, float])
        lease.check()
        return lease.fence


def pay_in_a_thread(locks: SyncLockManagerLike) -> int:
    """Work under a lock."""
    with locks.lock("invoice", blocking=False) as lease:
        return lease.fence


class FakeLease:
    """A lease that nothing takes away."""

    names = ("invoice",)
    fence = 1
    held = True
    remaining = 10.0

    def check(self) -> None:
        """Be held."""


class FakeLocks:
    """A manager without nodes."""

    @asynccontextmanager
    async def lock(self, *names: str, **options: Any) -> AsyncIterator[FakeLease]:
        """Give it at once."""
        yield FakeLease()


class FakeSyncLocks:
    """The same for threads."""

    @contextmanager
    def lock(self, *names: str, **options: object) -> Iterator[FakeLease]:
        """Give it at once."""
        yield FakeLease()


async def use(manager: LockManager, in_threads: SyncLockManager, lease: Lease, sync_lease: SyncLease) -> None:
    """All of them fit."""
    assert_type(await pay(manager) + await pay(FakeLocks()), int)
    await pay(create_autospec(LockManager))
    pay_in_a_thread(in_threads)
    pay_in_a_thread(FakeSyncLocks())
    leases: list[LeaseLike] = [lease, sync_lease, FakeLease()]
    assert_type(leases[0].fence, int)
