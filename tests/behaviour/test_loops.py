"""One manager, one loop after the other: a manager at module level in scripts, tests and test clients."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from aioredlock_ng import Lease, LockManager, LossReason
from aioredlock_ng._lock.session import Session
from aioredlock_ng._session import lifecycle
from tests.behaviour.tools import PATIENCE, Recorder, all_up, keys
from tests.servers import Nodes

TTL: Final = 30.0  # seconds: longer than any of these tests takes


async def hold(manager: LockManager, name: str = "job") -> int:
    """Hold a lock for a moment; returns its fence."""
    async with manager.lock(name, blocking_timeout=PATIENCE) as lease:
        assert lease.fence is not None
        return lease.fence


class Losses(Recorder):
    """A hook that keeps what is lost."""

    @property
    def reasons(self) -> list[LossReason]:
        """Why, of each loss."""
        return [event.reason for event in self.events if type(event).__name__ == "Lost"]


@pytest.fixture
def broken_off(shared_nodes: Nodes) -> tuple[LockManager, Lease, Losses]:
    """Give a manager and a lease whose loop was closed under them, with all its tasks."""
    losses = Losses()
    manager = LockManager(shared_nodes.urls, ttl=TTL, hooks=[losses])
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(manager.lock("job").acquire())
    assert not lease.lost.is_set()
    loop.close()
    return manager, lease, losses


@pytest.mark.parametrize("clients", [False, True])
def test_two_loops_one_after_the_other(shared_nodes: Nodes, clients: bool) -> None:
    """As two tests with a loop of each their own use it; what a user's client keeps is let go of there."""
    own = [Redis.from_url(url) for url in shared_nodes.urls[:3]] if clients else []
    manager = LockManager([*own, *shared_nodes.urls[len(own) :]])

    async def use() -> int:
        fence = await hold(manager)
        if clients:
            await manager.aclose()
        for client in own:
            await client.aclose()
        return fence

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first < second
    assert keys(shared_nodes.urls) == {}
    statistics = manager.statistics()
    assert (statistics.acquired, statistics.released) == (2, 2), "the counters go on"


def test_a_closed_manager_starts_anew_while_the_loop_before_runs(shared_nodes: Nodes) -> None:
    """Nothing of it lives on in that loop; there it belongs to the other one then."""
    manager = LockManager(shared_nodes.urls)

    async def main() -> None:
        async with manager:
            await hold(manager)
        inside, done = threading.Event(), threading.Event()

        async def elsewhere() -> None:
            async with manager, manager.lock("job"):
                inside.set()
                await asyncio.to_thread(done.wait, PATIENCE)

        running = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
        assert await asyncio.to_thread(inside.wait, PATIENCE)
        with pytest.raises(RuntimeError, match="another event loop"):
            await manager.start()
        done.set()
        await running

    asyncio.run(main())
    assert keys(shared_nodes.urls) == {}


def test_a_lease_whose_loop_was_closed_is_lost(
    broken_off: tuple[LockManager, Lease, Losses], shared_nodes: Nodes
) -> None:
    """The next use of the manager reports it; its keys still exclude all clients."""
    manager, lease, losses = broken_off

    async def next_loop() -> None:
        await manager.start()
        await all_up(manager)
        assert await manager.lock("job").try_acquire() is None
        await hold(manager, "another")
        assert losses.reasons == [LossReason.LOOP_CLOSED]
        assert lease.lost.is_set()
        assert manager.statistics().lost == 1
        for use in (lease.release, lease.extend):
            with pytest.raises(RuntimeError, match="the event loop of this lease is closed"):
                await use()
        await manager.aclose()

    asyncio.run(next_loop())
    assert len(keys(shared_nodes.urls)) >= 3, "a majority"


@pytest.mark.parametrize("used", [False, True], ids=["new", "used in a loop before"])
def test_two_loops_that_begin_at_once(
    shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """One of two threads has the manager, and the other one gets an error: it belongs to another loop."""
    manager = LockManager(shared_nodes.urls)
    if used:
        asyncio.run(hold(manager))
    both, one_failed = threading.Barrier(2), threading.Event()
    ends: list[str] = []

    def make(*args: Any, **kwargs: Any) -> Session:
        session = Session(*args, **kwargs)
        both.wait(PATIENCE)  # neither has found a session
        return session

    monkeypatch.setattr(lifecycle, "Session", make)

    async def use() -> None:
        try:
            await hold(manager)
        except RuntimeError as error:
            ends.append(str(error))
            one_failed.set()
        else:
            ends.append("has had the lock")
            await asyncio.to_thread(one_failed.wait, PATIENCE)  # else the other one may come after the end
            await manager.aclose()

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert sorted(ends) == [
        "has had the lock",
        "this LockManager belongs to another event loop: make one per loop",
    ]
