"""What users of other libraries write by habit is told how it is written here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world

ASYNCIO_ONLY = r"only with asyncio.*trio"


async def test_a_lock_that_is_awaited():
    """``await manager.lock(…)`` says how a lock is entered, and acquires nothing."""
    async with world() as w:
        lock: Any = w.manager.lock("a")
        with pytest.raises(TypeError, match=r"cannot be awaited: write `async with .*\.acquire\(\)`"):
            await lock
        assert w.keys == [()] * 3
        assert w.manager.statistics().acquired == 0


def uses(manager: LockManager) -> list[Any]:
    """Return what a manager is used for first."""
    lock = manager.lock("a")
    return [manager.start(), lock.acquire(), lock.try_acquire(), lock.__aenter__(), manager.inspect("a")]


def test_without_asyncio() -> None:
    """Where another library than asyncio runs the coroutine, as trio does, or none at all: it says so."""
    for number in range(5):
        for index, use in enumerate(uses(LockManager([MemoryNode()]))):
            if index == number:
                with pytest.raises(RuntimeError, match=ASYNCIO_ONLY):
                    use.send(None)
            use.close()


async def test_without_asyncio_later() -> None:
    """The same for a manager, and a lease, that were begun under asyncio."""
    loop = asyncio.get_running_loop()
    async with world() as w, w.manager.lock("a") as lease:
        for use in (*uses(w.manager), lease.extend(), lease.release()):
            asyncio._set_running_loop(None)  # as if trio ran it
            try:
                with pytest.raises(RuntimeError, match=ASYNCIO_ONLY):
                    use.send(None)
            finally:
                asyncio._set_running_loop(loop)
            use.close()


@pytest.mark.parametrize("option", ["timeout", "lock_timeout", "auto_release_time"])
@pytest.mark.parametrize("make_manager", [LockManager, SyncLockManager])
def test_options_of_other_libraries(option: str, make_manager: Any) -> None:
    """The error names the option and the one that is meant."""
    manager = make_manager([MemoryNode()])
    for describe in (manager.lock, manager.rwlock, manager.semaphore, manager.election):
        permits = {"permits": 2} if describe == manager.semaphore else {}
        with pytest.raises(
            TypeError, match=rf"{describe.__name__}\(\) got .* '{option}': `ttl` is the seconds"
        ):
            describe("a", **permits, **{option: 10})
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'colour'$"):
        manager.lock("a", colour="blue")


async def test_calls_of_other_libraries():
    """The error names what is called for."""
    async with world() as w, w.manager.lock("a") as lease:
        manager: Any = w.manager
        for on, name, right in (
            (manager, "unlock", r"`release\(\)` of its lease"),
            (manager, "extend", r"`extend\(\)` of the lease"),
            (manager, "is_locked", r"`locked\(\)` of the lock"),
            (manager, "destroy", r"`aclose\(\)` of the manager"),
            (manager.lock("a"), "release", r"`release\(\)` of its lease"),
            (lease, "valid", "`held` of the lease"),
            (SyncLockManager([MemoryNode()]).lock("a"), "owned", "`held` of the lease"),
        ):
            with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*{right}"):
                getattr(on, name)
        assert not hasattr(manager, "colour")
