"""The first use of a manager: in a forked child, or while a node is frozen."""

from __future__ import annotations

import time
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import no_key_left, python

FIRST_USED_IN_A_CHILD: Final = """
import asyncio, os, sys
from redis.asyncio import Redis
from aioredlock_ng import LockManager

urls, kind = sys.argv[1].split(","), sys.argv[2]
clients = [Redis.from_url(url) for url in urls] if kind == "clients" else []
manager = LockManager(clients or urls, ttl=20, node_timeout=5)

async def seen_by_all(held):
    for _ in range(100):  # a client's calls take connections of their own: the slowest may be on its way
        seen = await manager.inspect("first")
        if [(node.held, node.ours) for node in seen] == [(held, held)] * len(urls):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(seen)

async def use():
    asyncio.get_running_loop().slow_callback_duration = 3600.0
    async with manager.lock("first", blocking_timeout=10) as lease:
        await lease.extend()
        await seen_by_all(True)
    await seen_by_all(False)
    await manager.aclose()
    for client in clients:
        await client.aclose()

if child := os.fork():
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
asyncio.run(use())
print("used in the child")
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["urls", "clients"])
async def test_a_manager_that_a_child_uses_first(nodes3: LocalNodes, kind: str) -> None:
    """A manager that was made before a fork, and not used, works in the child."""
    program = python("-W", "always", "-c", FIRST_USED_IN_A_CHILD, ",".join(nodes3.urls), kind)
    async with program as child:
        said, errors = await child.ended()
    assert (child.process.returncode, errors, said) == (0, "", "used in the child\n")
    await no_key_left(nodes3.urls)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["try_acquire", "acquire"])
async def test_the_first_use_does_not_need_every_server(nodes3: LocalNodes, how: str) -> None:
    """The first try of a manager wins at once although one of three servers is frozen."""
    nodes3.pause(2)
    async with LockManager(nodes3.urls, ttl=90, node_timeout=30.0, connect_timeout=60.0) as manager:
        began = time.monotonic()
        lease = await getattr(manager.lock("first", blocking_timeout=0), how)()
        assert lease is not None
        assert time.monotonic() - began < 20.0
        nodes3.resume(2)  # the release waits for every node
        await lease.release()
