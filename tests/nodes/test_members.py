"""Lists of nodes that disagree, over real servers; and a server that is replaced under load (A4, R12c)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from aioredlock_ng import ConfigurationError, LockError, LockManager, NodeState
from aioredlock_ng.testing.local_nodes import LocalNodes, initialise
from tests.redis_sentinels import running_sentinel, watching
from tests.servers import ask, eventually, fastest_arm

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
    """The old server is stopped first.  A client that is changed before that is refused, and learns why."""
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


def _fails_over(sentinel: str) -> bool:
    """Ask for a failover; return False when no replica is fit for it yet."""
    try:
        ask(sentinel, "SENTINEL FAILOVER", "main")
    except ResponseError:
        return False
    return True


@pytest.mark.heavy
async def test_a_client_that_starts_at_any_moment_of_failovers_is_never_refused(
    nodes4: LocalNodes, tmp_path: Path
) -> None:
    """There and back, by Redis Sentinel, while another server restarts empty: all lists are the same."""
    master, replica, b, c = nodes4.urls
    ask(replica, "REPLICAOF", "127.0.0.1", nodes4.ports[0])
    initialise([master, b, c], "lists:")
    over, starts, reports = False, 0, []

    async def start_again(urls: Sequence[str]) -> None:
        nonlocal starts
        while not over:
            async with using(urls, "new") as manager:
                with contextlib.suppress(LockError):
                    await use(manager)
                reports.extend(manager.statistics().strangers)
                starts += 1
            await asyncio.sleep(0.02)

    with running_sentinel(tmp_path / "sentinel", *watching("main", nodes4.ports[0])) as port:
        sentinel, urls = f"redis://127.0.0.1:{port}", [f"redis+sentinel://127.0.0.1:{port}/main", b, c]
        await eventually(lambda: ask(sentinel, "SENTINEL MASTER", "main")["num-slaves"] == 1, within=30)
        async with using(urls, "old") as old, asyncio.TaskGroup() as tasks:
            await use(old)
            tasks.create_task(start_again(urls))
            for _ in range(2):
                await eventually(lambda: _fails_over(sentinel), within=30)
                await asyncio.sleep(QUARANTINE + HEARTBEATS)
                await nodes4.restart(2)
                await eventually(
                    lambda: {node.state for node in old.statistics().nodes} == {NodeState.UP}, within=60
                )
                await use(old)
            over = True
            assert old.statistics().strangers == ()
    assert starts > 10
    assert reports == []
