"""Whatever is cancelled, and wherever: nothing is left behind (rules R5, R6)."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from aioredlock_ng import LockManager
from tests.behaviour.tools import PATIENCE, all_up, keys, no_key_left, quiet
from tests.servers import Nodes, ask, eventually

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


async def _answered(manager: LockManager) -> None:
    """Wait until every node has answered everything it was ever asked, recorded releases included."""
    await all_up(manager)
    await eventually(
        lambda: not any(node.in_flight or node.pending_releases for node in manager.statistics().nodes),
        within=PATIENCE,
        what=f"all answered: {manager.statistics()!r}",
    )


@pytest.mark.heavy
@pytest.mark.parametrize("paused", [1, 3, 5])
async def test_a_late_answer_leaves_no_key(nodes5: Nodes, paused: int) -> None:
    """A cancelled acquire leaves no key on nodes that run it only when they answer again."""
    async with quiet(), LockManager(nodes5.urls, node_timeout=5) as manager:
        for url in nodes5.urls[:paused]:
            ask(url, "CLIENT PAUSE", 700, "ALL")
        task = asyncio.create_task(manager.lock("late", ttl=TTL).acquire())
        if paused < 3:
            lease = await task  # a majority is there: nothing to cancel, but the release waits as long
            task = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
        else:
            busy = nodes5.urls[paused:]
            await eventually(lambda: all(keys([url]) for url in busy), what="the acquire has left")
            await asyncio.sleep(0.01)  # also where no node can be asked
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        await _answered(manager)
        assert keys(nodes5.urls) == {}
