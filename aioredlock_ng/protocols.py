"""Protocols for the annotations of your own code, so that a fake of yours fits them as a manager does.

    async def pay(locks: LockManagerLike, invoice: int) -> None:
        async with locks.lock(f"invoice:{invoice}", ttl=30) as lease:
            lease.check()

Type checkers compare: `LockManager`, `SyncLockManager` and their leases fit, and so does a class with these
methods, such as one whose `lock` is an ``@asynccontextmanager``.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, Unpack

from ._settings.options import LockOptions

__all__ = ["LeaseLike", "LockManagerLike", "SyncLockManagerLike"]


class LeaseLike(Protocol):
    """The part of `Lease` and `SyncLease` that code under a lock needs."""

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names."""

    @property
    def fence(self) -> int:
        """The fencing token."""

    @property
    def held(self) -> bool:
        """Whether the lock is ours."""

    @property
    def remaining(self) -> float:
        """Seconds of validity left."""

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is ours."""


class LockManagerLike(Protocol):
    """The part of `LockManager` that code needs which runs under a lock."""

    def lock(
        self, *names: str, **options: Unpack[LockOptions]
    ) -> AbstractAsyncContextManager[LeaseLike, bool | None]:
        """Return what ``async with`` enters."""


class SyncLockManagerLike(Protocol):
    """The part of `SyncLockManager` that code needs which runs under a lock."""

    def lock(
        self, *names: str, **options: Unpack[LockOptions]
    ) -> AbstractContextManager[LeaseLike, bool | None]:
        """Return what ``with`` enters."""
