"""Calls that users of other libraries write by habit: the error says what to write here."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import world

ASYNCIO_ONLY = r"only with asyncio.*trio"


async def block(entered: Any) -> None:
    """Enter in an event loop."""
    async with entered:
        raise AssertionError("not reached")


async def plain_block(entered: Any) -> None:
    """Enter as a thread does."""
    with entered:
        raise AssertionError("not reached")


async def stack(entered: Any) -> None:
    """Enter by an exit stack."""
    async with contextlib.AsyncExitStack() as entering:
        await entering.enter_async_context(entered)


async def plain_stack(entered: Any) -> None:
    """Likewise, of a thread."""
    with contextlib.ExitStack() as entering:
        entering.enter_context(entered)


async def await_it(awaited: Any) -> None:
    """Await what has no result."""
    await awaited


LOCK = r"write `async with lock as lease:`, or `lease = await lock\.acquire\(\)`"
SHARED = r"write `async with manager\.rwlock\(…\)\.read\(\) as lease:`"
LEADER = r"write `async with manager\.election\(…\)\.campaign\(\) as leadership:`"


@pytest.mark.parametrize(
    ("make", "uses", "words"),
    [
        (lambda m: m, (plain_block, plain_stack), r"write `async with LockManager\(…\) as manager:`"),
        (lambda m: m.lock("a"), (plain_block, plain_stack, await_it), LOCK),
        (lambda m: m.semaphore("a", permits=2), (plain_block, await_it), LOCK),
        (lambda m: m.lock("a").acquire(), (block, plain_block, stack, plain_stack), LOCK),
        (lambda m: m.rwlock("a").read().try_acquire(), (block, plain_block), LOCK),
        (lambda m: m.rwlock("a"), (block, plain_block, stack, plain_stack, await_it), SHARED),
        (lambda m: m.election("a"), (block, plain_block, stack, plain_stack, await_it), LEADER),
        (lambda m: m.election("a").campaign(), (plain_block, plain_stack), LEADER),
        (lambda m: m.election("a").try_campaign(), (block, plain_block), LEADER),
    ],
)
async def test_what_is_used_in_another_way_says_what_to_write(make: Any, uses: Any, words: str) -> None:
    """And acquires nothing; nor does Python warn of a coroutine that was never awaited."""
    async with world() as w:
        for use in uses:
            with pytest.raises(TypeError, match=words):
                await use(make(w.manager))
        gc.collect()
        assert w.keys == [()] * 3
        assert w.manager.statistics().acquired == 0


@pytest.mark.parametrize(
    ("make", "uses", "words"),
    [
        (lambda m: m, (block, stack), r"`with SyncLockManager\(…\) as manager:`; .* use a `LockManager`"),
        (lambda m: m.lock("a"), (block, stack), r"`with manager\.lock\(…\) as lease:`.* use a `LockManager`"),
        (lambda m: m.rwlock("a"), (block, plain_block), r"`with manager\.rwlock\(…\)\.read\(\) as lease:`"),
        (lambda m: m.election("a"), (block, plain_block), r"`with manager\.election\(…\)\.campaign\(\) as"),
        (lambda m: m.election("a").campaign(), (block, stack), r"`with manager\.election\(…\)\.campaign\(\)"),
    ],
)
async def test_the_same_of_what_threads_have(make: Any, uses: Any, words: str) -> None:
    """In an event loop the error names the asyncio façade; no thread is started."""
    for use in uses:
        with pytest.raises(TypeError, match=rf"write {words}"):
            await use(make(SyncLockManager([MemoryNode()])))


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


@pytest.mark.parametrize(
    ("kind", "called", "option"),
    [
        ({}, "locked()", "colour"),
        ({"mode": "read"}, "locked(mode='read')", "at_least"),
        ({"permits": 2}, "locked(permits=2)", "fair"),
    ],
)
def test_an_option_that_a_decorated_lock_cannot_have(kind: dict[str, Any], called: str, option: str) -> None:
    """The error names the call as it was written."""
    manager = LockManager([MemoryNode()])
    with pytest.raises(TypeError) as caught:
        manager.locked("a", **kind, **{option: True})(block)
    assert str(caught.value) == f"{called} got an unexpected keyword argument {option!r}"


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
            (manager, "acquire", r"write `manager\.lock\(name\)\.acquire\(\)`"),
            (manager.rwlock("a"), "acquire", r"`\.read\(\)\.acquire\(\)` or `\.write\(\)\.acquire\(\)`"),
            (manager.election("a"), "try_acquire", r"`\.campaign\(\)` or `\.try_campaign\(\)`"),
            (lease, "valid", "`held` of the lease"),
            (SyncLockManager([MemoryNode()]).lock("a"), "owned", "`held` of the lease"),
        ):
            with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*{right}"):
                getattr(on, name)
        assert not hasattr(manager, "colour")
