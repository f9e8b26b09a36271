"""The first use of a manager: in a forked child, or while a node is frozen; and a child's own way out."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import no_key_left
from tests.unit.worlds import make, virtual, world

FIRST_USED_IN_A_CHILD: Final = """
import asyncio, os, sys
from redis.asyncio import Redis
from aioredlock_ng import LockManager

urls, kind = sys.argv[1].split(","), sys.argv[2]
clients = [Redis.from_url(url) for url in urls] if kind == "clients" else []
manager = LockManager(clients or urls, ttl=20, node_timeout=5)

async def seen_by_all(held):
    seen = ()
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

CHILD_LEAVES_A_BLOCK: Final = """
import asyncio, os, sys
from aioredlock_ng import LockManager

urls = sys.argv[1].split(",")

async def main():
    asyncio.get_running_loop().slow_callback_duration = 3600.0
    async with LockManager(urls, ttl=20, node_timeout=5) as manager:
        lock = manager.lock("parent's")
        leaving = None
        try:
            async with lock as outer, await manager.lock("travels").acquire() as inner:
                if not (child := os.fork()):
                    leaving = sys.exit
                    sys.exit(7)
                _, status = os.waitpid(child, 0)
                await outer.extend()
                await inner.extend()
                for name in ("parent's", "travels"):
                    seen = await manager.inspect(name)
                    assert [node.ours for node in seen] == [True] * len(urls), seen
                print("child:", os.waitstatus_to_exitcode(status), flush=True)
        except BaseException as error:
            if leaving:
                os._exit(error.code if type(error) is SystemExit else 99)
            raise

asyncio.run(main())
"""


async def output(program: str, *arguments: str) -> str:
    """Run a program in a process of its own, in development mode; return what it said."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "dev", "-W", "always", "-c", program, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        said, errors = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    return said.decode().strip()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["urls", "clients"])
async def test_a_manager_that_a_child_uses_first(nodes3: LocalNodes, kind: str) -> None:
    """A manager that was made before a fork, and not used, works in the child."""
    assert await output(FIRST_USED_IN_A_CHILD, ",".join(nodes3.urls), kind) == "used in the child"
    await no_key_left(nodes3.urls)


@pytest.mark.process
async def test_a_child_that_exits_inside_a_block(nodes3: LocalNodes) -> None:
    """sys.exit() in a forked child inside `async with` stays SystemExit, and the parent's locks stay."""
    assert await output(CHILD_LEAVES_A_BLOCK, ",".join(nodes3.urls)) == "child: 7"
    await no_key_left(nodes3.urls)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["try", "zero"])
async def test_the_first_use_does_not_need_every_server(nodes3: LocalNodes, how: str) -> None:
    """The first try of a manager wins at once although one of three servers is frozen."""
    nodes3.pause(2)
    manager = LockManager(nodes3.urls, ttl=90, node_timeout=30.0, connect_timeout=60.0)
    try:
        lock = manager.lock("first", blocking_timeout=0)
        began = time.monotonic()
        lease = await (lock.try_acquire() if how == "try" else lock.acquire())
        assert lease is not None
        assert time.monotonic() - began < 20.0
        nodes3.resume(2)  # the release waits for every node
        await lease.release()
    finally:
        nodes3.resume(2)
        await manager.aclose()


@pytest.mark.parametrize("frozen", [0, 1, 2])
@pytest.mark.parametrize("how", ["try", "zero"])
def test_the_first_use_does_not_need_every_node(how: str, frozen: int) -> None:
    """The first try wins whichever node is frozen, and a majority that is connected is not waited with."""

    @virtual
    async def main() -> None:
        async with world() as w:  # its own manager is not the one that is looked at
            w.nodes[frozen].freeze()
            manager = make(w.nodes, seed=7)
            lock = manager.lock("first", blocking_timeout=0)
            began = asyncio.get_running_loop().time()
            lease = await (lock.try_acquire() if how == "try" else lock.acquire())
            assert lease is not None
            assert asyncio.get_running_loop().time() - began < 0.05
            await lease.release()
            await manager.aclose()
            w.nodes[frozen].thaw()

    main()
