"""Lists of nodes that disagree, over real servers; and a server that is replaced under load (A4, R12c)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest

from aioredlock_ng import ConfigurationError, LockError, LockManager
from aioredlock_ng.testing.local_nodes import LocalNodes, initialise
from tests.servers import fastest_arm

QUARANTINE = 6.5
HEARTBEATS = 2.5
"""Two of them, in seconds, and what a busy machine needs."""
NOTICED = 9.0
"""Seconds until a server that has no vote so far is noticed beside the one of another list."""


@pytest.fixture
def nodes4() -> Iterator[LocalNodes]:
    """Give four servers."""
    with contextlib.closing(LocalNodes(4, server=fastest_arm())) as nodes:
        nodes.start()
        yield nodes


def using(urls: Sequence[str], label: str) -> LockManager:
    """Return a manager over these servers."""
    return LockManager(
        urls, prefix="lists:", restart_quarantine=QUARANTINE, ttl=QUARANTINE, node_timeout=0.5, holder=label
    )


async def use(manager: LockManager) -> int:
    """Acquire and release a lock; return its fence."""
    async with manager.lock("a", blocking_timeout=3) as lease:
        assert lease.fence is not None
        return lease.fence


async def test_two_lists_that_differ_in_a_server(nodes4: LocalNodes) -> None:
    """The second one is refused, and the first one goes on."""
    a, b, x, y = nodes4.urls
    initialise([a, b, x], "lists:")
    async with contextlib.AsyncExitStack() as stack:
        first, second = using((a, b, x), "first"), using((a, b, y), "second")
        for manager in (first, second):
            stack.push_async_callback(manager.aclose)
        await use(first)
        await asyncio.sleep(HEARTBEATS)
        await use(second)  # y has no vote: a and b exclude the other client
        await asyncio.sleep(NOTICED)
        with pytest.raises(ConfigurationError, match="says client first"):
            await use(second)
        await use(first)


@pytest.mark.heavy
async def test_a_server_is_replaced_under_load(nodes4: LocalNodes) -> None:
    """Its process is stopped, an empty one is started behind its address, and fences grow all along."""
    urls = nodes4.urls[:3]
    initialise(urls, "lists:")
    fences: list[int] = []
    holders = 0
    over = False

    async def work(manager: LockManager) -> None:
        nonlocal holders
        while not over:
            async with manager.lock("a", blocking_timeout=10) as lease:
                holders += 1
                assert holders == 1
                assert lease.fence is not None
                fences.append(lease.fence)
                await asyncio.sleep(0.002)
                holders -= 1

    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        managers = [using(urls, f"client {number}") for number in range(3)]
        for manager in managers:
            stack.push_async_callback(manager.aclose)
            tasks.create_task(work(manager))
        for place in (2, 0):
            await asyncio.sleep(0.5)
            nodes4.kill(place)
            await asyncio.sleep(0.3)
            await nodes4.restart(place)
            await asyncio.sleep(QUARANTINE + HEARTBEATS)
            assert all(manager.statistics().quorum_margin == 1 for manager in managers)
        over = True
    assert fences == sorted(set(fences))


@pytest.mark.heavy
async def test_a_list_is_changed_client_by_client(nodes4: LocalNodes) -> None:
    """The old server is stopped first.  A client that is changed before that is refused, and told why."""
    a, b, x, y = nodes4.urls
    initialise([a, b, x], "lists:")
    async with contextlib.AsyncExitStack() as stack:
        old = using((a, b, x), "old")
        new = using((a, b, y), "new")
        for manager in (old, new):
            stack.push_async_callback(manager.aclose)
        fences = [await use(old)]
        await asyncio.sleep(HEARTBEATS)
        fences.append(await use(new))
        await asyncio.sleep(NOTICED)
        with pytest.raises(ConfigurationError, match="another server in its place"):
            await use(new)
        nodes4.kill(2)
        deadline = asyncio.get_running_loop().time() + 5 * QUARANTINE
        while True:
            fences.append(await use(old))
            with contextlib.suppress(LockError, ConfigurationError):
                fences.append(await use(new))
                break
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.2)
        fences.append(await use(old))
        assert fences == sorted(set(fences))
