"""The first use of a manager: in a forked child, or while a node is frozen; what it sends and imports."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final
from urllib.parse import urlsplit

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import no_key_left, python
from tests.nodes.tools import listening

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


async def test_the_way_to_the_first_lock_is_short(nodes3: LocalNodes) -> None:
    """A client speaks five times: login; questions and scripts; two greetings; the acquire.

    That is counted, not timed.  The scripts are there: another client was before it.
    """
    async with LockManager(nodes3.urls) as manager, manager.lock("before"):
        pass
    spoken: list[int] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        me, silent = len(spoken), True
        spoken.append(0)

        async def answers() -> None:
            nonlocal silent
            while data := await there.read(65536):
                silent = True
                writer.write(data)

        answering = asyncio.create_task(answers())
        while data := await reader.read(65536):
            spoken[me] += silent
            silent = False
            back.write(data)
        answering.cancel()
        back.close()

    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for url in nodes3.urls:
            port = urlsplit(url).port
            urls.append(await stack.enter_async_context(listening(lambda r, w, port=port: relay(r, w, port))))
        manager = await stack.enter_async_context(contextlib.aclosing(LockManager(urls)))
        async with manager.lock("first"):
            assert len(spoken) == len(urls)
            assert max(spoken) <= 5


IMPORTS: Final = """
import asyncio, os, sys
from aioredlock_ng import LockManager

async def main():
    before = set(sys.modules)
    manager = LockManager(sys.argv[2].replace("127.0.0.1", "localhost").split(","), connect_timeout=30)
    async with manager.lock("a", blocking_timeout=30) as lease:
        await lease.extend()
    async with manager.rwlock("b").read(), manager.semaphore("c", permits=2), manager.lock("d", fair=True):
        pass
    async with manager.rwlock("b").write():
        pass
    await (await manager.election("e").try_campaign()).resign()
    lease = await manager.lock("f").acquire()
    await manager.force_release("f")
    try:
        await lease.extend()
    except Exception:
        pass
    await manager.aclose()
    print(*sorted(set(sys.modules) - before))

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_first_use_imports_nothing(nodes3: LocalNodes, loop: str) -> None:
    """An import would keep the event loop waiting, in the first request of a user."""
    async with python("-c", IMPORTS, loop, ",".join(nodes3.urls), development=False) as child:
        said, _ = await child.ended()
    assert child.process.returncode == 0
    assert said.split() == []
