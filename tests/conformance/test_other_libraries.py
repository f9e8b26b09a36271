"""Another Redlock on the same keys: the holder keeps the other out (R16).

redis-py's own lock is in ``behaviour/test_exclusion.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib

import pytest
import redis
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


def other_library(name):
    """Import another library; where the tests of pottery are required, those of all are."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return (pytest.fail if "pottery" in required() else pytest.skip)(f"{name}: {error}")


@pytest.fixture
def pottery_lock(clients):
    """Return a function that makes pottery's Redlock over these servers; its key is ``redlock:res``."""
    pottery = other_library("pottery")
    return lambda: pottery.AIORedlock(key="res", masters=set(clients), auto_release_time=30)


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


@pytest.mark.parametrize("urls", [1], indirect=True)  # python-redis-lock knows one server
async def test_python_redis_lock_and_pottery_at_once(pottery_lock, urls):
    """As migration.md has it: one lock over both keys; a waiter in BLPOP needs a signal, or an `expire`."""
    url = urls[0]
    library = other_library("redis_lock")

    def theirs(**options):
        return library.Lock(redis.Redis.from_url(url), "res", **options)

    plain = {"prefix": "", "fencing": False, "restart_quarantine": 0, "node_timeout": 1.0}
    async with LockManager(urls, **plain) as manager:
        both = manager.lock("lock:res", "redlock:res", ttl=30, blocking=False)
        async with both:
            await everywhere(urls, "redlock:res")
            assert not theirs().acquire(blocking=False)
            assert not await pottery_lock().acquire(blocking=False)
            for_ever = asyncio.create_task(asyncio.to_thread(theirs(expire=None).acquire))
            await eventually(lambda: b"cmd=blpop" in ask(url, "CLIENT", "LIST"))
        await eventually(lambda: not ask(url, "EXISTS", "lock:res"))
        await asyncio.sleep(0.2)
        assert not for_ever.done()
        ask(url, "LPUSH", "lock-signal:res", "1")
        await asyncio.wait_for(for_ever, 5)
        with pytest.raises(LockTakenError):
            await both.acquire()
        assert not ask(url, "EXISTS", "redlock:res"), "all or none"
        theirs().reset()
        async with both:
            in_time = asyncio.create_task(asyncio.to_thread(theirs(expire=1).acquire))
            await eventually(lambda: b"cmd=blpop" in ask(url, "CLIENT", "LIST"))
        await asyncio.wait_for(in_time, 5)
        theirs().reset()
