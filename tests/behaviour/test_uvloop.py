"""The essentials once more, on uvloop."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest

from aioredlock_ng import LockLostError, LockManager, LockTakenError, LossReason
from tests.behaviour.tools import boot_time, keys, no_key_left, quiet, strike
from tests.servers import Nodes

FOREVER: Final = 3600.0

Scenario = Callable[[Nodes, LockManager], Awaitable[None]]


async def acquire_and_release(nodes: Nodes, manager: LockManager) -> None:
    """One holder at a time, among tasks and against another manager."""
    inside: list[int] = []

    async def work(number: int) -> None:
        async with manager.lock("one"):
            assert not inside
            inside.append(number)
            await asyncio.sleep(0)
            inside.remove(number)

    await asyncio.gather(*map(work, range(50)))
    async with LockManager(nodes.urls) as other, other.lock("one"):
        with pytest.raises(LockTakenError):
            await manager.lock("one", blocking_timeout=0).acquire()


async def lose(nodes: Nodes, manager: LockManager) -> None:
    """The body is cancelled before its validity ends when a majority is frozen."""
    with pytest.raises(LockLostError) as lost:
        async with manager.lock("frozen", ttl=2.0) as lease:
            strike(nodes, "frozen", 0, 1, 2)
            try:
                await asyncio.sleep(FOREVER)
            finally:
                assert boot_time() < lease.valid_until
    assert lost.value.reason is LossReason.EXPIRED
    for i in range(3):
        nodes.resume(i)
    await no_key_left(nodes.urls, within=5)


async def cancel(nodes: Nodes, manager: LockManager) -> None:
    """A cycle that is cancelled after any number of turns leaves nothing."""

    async def cycle() -> None:
        async with manager.lock("cancelled", ttl=60):
            await asyncio.sleep(0)

    for turns in range(200):
        task = asyncio.create_task(cycle())
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
    await no_key_left(nodes.urls)
    assert manager.statistics().held == 0


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Give something that runs coroutines on uvloop."""
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", [acquire_and_release, lose, cancel])
def test_on_uvloop(nodes5: Nodes, runner: asyncio.Runner, scenario: Scenario) -> None:
    """Acquiring, extending, losing and cancelling work on uvloop as they do on asyncio's own loop."""

    async def main() -> None:
        async with quiet(), LockManager(nodes5.urls, ttl=1.0) as manager:
            await scenario(nodes5, manager)

    runner.run(main())
    assert keys(nodes5.urls) == {}
