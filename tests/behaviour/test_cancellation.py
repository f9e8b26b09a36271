"""Whatever is cancelled, and wherever: nothing is left behind (rules R5, R6)."""

from __future__ import annotations

import asyncio
from typing import Final

from aioredlock_ng import LockManager
from tests.behaviour.tools import no_key_left, quiet
from tests.servers import Nodes

TTL: Final = 60.0  # seconds: so long that a key which is left behind is still there when the test looks


async def test_every_turn_of_one_cycle_is_cancelled(shared_nodes: Nodes) -> None:
    """A cycle that is cancelled after k turns of the loop leaves nothing, for every k until it is through."""
    async with quiet(), LockManager(shared_nodes.urls) as manager:
        done: list[int] = []

        async def cycle(number: int) -> None:
            async with manager.lock("swept", ttl=TTL):
                await asyncio.sleep(0)
            done.append(number)

        for turns in range(10_000):
            task = asyncio.create_task(cycle(turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            await no_key_left(shared_nodes.urls)
            if len(done) == 3:
                break
        assert len(done) == 3, "the cycle never ends"
        assert manager.statistics().held == 0
