"""A burst of tasks on real servers: the nodes are asked in turn, and what is held stays held (R13, R15)."""

from __future__ import annotations

import asyncio

from aioredlock_ng import LockManager
from aioredlock_ng._local.admission import MAX_TRIES
from aioredlock_ng._node import Node
from aioredlock_ng._node.redis_node import RedisNode
from tests.behaviour.tools import keys, quiet
from tests.servers import Nodes


def under_way(node: Node) -> int:
    """Return for how many locks a node has something to answer: a batch counts as often as it has locks."""
    assert isinstance(node, RedisNode)
    pipe = node._link.pipe if node._link else None
    return 0 if pipe is None else sum(len(list(pipe._singles(entry))) for entry in pipe._entries)


async def test_a_burst_costs_no_lease_and_no_try(shared_nodes: Nodes) -> None:
    """Many tasks ask for free names at once: each asks once, and nodes have few commands to answer."""
    tasks = 8 * MAX_TRIES
    most = 0

    async with quiet(), LockManager(shared_nodes.urls, ttl=30.0, node_timeout=10.0) as manager:

        async def cycle(number: int) -> None:
            async with manager.lock(f"{number}"):
                pass

        async def look() -> None:
            nonlocal most
            while True:
                # The nodes that a majority rests on: a slower one may fall behind.
                most = max(most, min(map(under_way, manager._life.nodes)))
                await asyncio.sleep(0)

        held = [await manager.lock(f"held {number}").acquire() for number in range(10)]
        looking = asyncio.create_task(look())
        burst = [asyncio.create_task(cycle(number)) for number in range(tasks)]
        await asyncio.gather(*(lease.extend() for lease in held))
        assert sum(task.done() for task in burst) < tasks / 2  # they did not stand behind the whole burst
        await asyncio.gather(*burst)
        looking.cancel()
        statistics = manager.statistics()
        assert (statistics.refused, statistics.lost, statistics.held) == (0, 0, len(held))
        assert MAX_TRIES <= most <= 3 * MAX_TRIES  # releases, too
        for lease in held:
            await lease.release()
    assert keys(shared_nodes.urls) == {}
