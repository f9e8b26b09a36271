"""The loop ends over client nodes whose servers do not answer: nothing is left under way (R17, R18)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng import Lease, LockManager
from tests.servers import lock_keys

TTL = 20.0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the clients are not closed, which is the point
@pytest.mark.parametrize("frozen", [(), (0,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("waiting", [False, True], ids=["a lease", "a lease and an acquire under way"])
def test_a_loop_that_is_torn_down_over_clients(nodes3, frozen, waiting):
    """asyncio.run leaves no pending task and no unheard error behind, and what can be released is."""
    complaints: list[dict[str, Any]] = []
    kept: list[Lease] = []
    tasks: list[asyncio.Task[Lease]] = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        manager = LockManager([Redis(port=port) for port in nodes3.ports], ttl=TTL)
        await manager.start()
        kept.append(await manager.lock("held").acquire())
        for i in frozen:
            nodes3.pause(i)
        if waiting:
            tasks.append(asyncio.create_task(manager.lock("wanted").acquire()))
            await asyncio.sleep(0)
        return loop

    loop = asyncio.run(main())
    assert asyncio.all_tasks(loop) == set()
    assert not kept[0].held
    kept.clear()
    gc.collect()  # here, where no other test uses the clients
    assert complaints == []
    assert all(task.done() for task in tasks)
    for i, url in enumerate(nodes3.urls):
        if i not in frozen:
            assert lock_keys(url) == []
