"""Another Redlock on the same keys: the holder keeps the other out (R16).

redis-py's own lock is in ``behaviour/test_exclusion.py``.
"""

from __future__ import annotations

import contextlib

import pytest
from redis.asyncio import Redis

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng.testing.local_nodes import initialise
from tests.servers import ask, eventually, required

MODES = [
    pytest.param({}, id="fenced"),
    pytest.param({"fencing": False}, id="plain"),
    pytest.param({"fencing": False, "restart_quarantine": 60}, id="plain, with a quarantine"),
]


@pytest.fixture(params=[1, 3], ids="N={}".format)
def urls(request, any_nodes):
    """Give that many servers, of which every manager knows."""
    chosen = any_nodes.urls[: request.param]
    for prefix in ("", "redlock:"):
        initialise(chosen, prefix)
    return chosen


@pytest.fixture
async def clients(urls):
    """Give the other library's connections to these servers."""
    async with contextlib.AsyncExitStack() as stack:
        made = [Redis.from_url(url) for url in urls]
        for client in made:
            stack.push_async_callback(client.aclose)
        yield made


async def everywhere(urls: list[str], key: str) -> None:
    """Wait until every server has a key: an acquire returns when a majority has."""
    await eventually(lambda: all(ask(url, "EXISTS", key) for url in urls))


@pytest.fixture
def pottery_lock(clients):
    """Return a function that makes pottery's Redlock over these servers; its key is ``redlock:res``."""
    try:
        from pottery import AIORedlock
    except ImportError as error:
        (pytest.fail if "pottery" in required() else pytest.skip)(f"pottery: {error}")
    return lambda: AIORedlock(key="res", masters=set(clients), auto_release_time=30)


@pytest.mark.parametrize("key", [("", "redlock:res"), ("redlock:", "res")], ids=["no prefix", "its prefix"])
@pytest.mark.parametrize("mode", MODES)
async def test_pottery_and_we_keep_each_other_out(mode, key, urls, pottery_lock):
    """A Redlock of another library over the same nodes is a holder like any, and so are we."""
    prefix, name = key
    async with LockManager(urls, prefix=prefix, node_timeout=1.0, **mode) as manager:
        theirs = pottery_lock()
        assert await theirs.acquire(blocking=False)
        await everywhere(urls, "redlock:res")
        with pytest.raises(LockTakenError) as caught:
            await manager.lock(name, blocking=False).acquire()
        assert 20 < caught.value.retry_after <= 30
        assert await theirs.locked(), "our attempt left it alone"
        await theirs.release()
        lease = await manager.lock(name, ttl=30, blocking_timeout=20).acquire()
        await everywhere(urls, "redlock:res")
        assert not await pottery_lock().acquire(blocking=False)
        await lease.extend(60)
        assert lease.held, "its attempt left us alone"
        await lease.release()
        await eventually(lambda: not any(ask(url, "EXISTS", "redlock:res") for url in urls))
        assert await theirs.acquire(blocking=False)
        await theirs.release()
