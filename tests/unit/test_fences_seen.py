"""Fences seen from outside: what nodes have of them, and what that says of the holder's (R10, R43)."""

from __future__ import annotations

import asyncio

from aioredlock_ng import LockInspection, LockManager
from aioredlock_ng.testing import MemoryNode
from tests.unit.traces import PREFIX, counter
from tests.unit.worlds import world

NAME = "a"


async def look(manager: LockManager) -> LockInspection:
    """Look at the lock."""
    (lock,) = (await manager.survey(NAME)).locks
    return lock


def stand(node: MemoryNode, fence: int | None) -> None:
    """Have a node's counter stand at a fence, or have none."""
    if fence is None:
        node.delete(counter(NAME))
    else:
        node.set(counter(NAME), b"%d" % fence, 600.0)


# -- the holder's ------------------------------------------------------------------------------------


async def test_the_fence_of_a_holder_alone_is_seen() -> None:
    """Whatever it holds the name as, in the survey and on each node; once it is free, no more."""
    async with world(3) as w, w.process() as other:
        kinds = {
            "mutex": w.manager.lock(NAME),
            "fair": w.manager.lock(NAME, fair=True),
            "write": w.manager.rwlock(NAME).write(),
            "read": w.manager.rwlock(NAME).read(),
        }
        for kind, lock in kinds.items():
            async with lock as lease:
                await asyncio.sleep(0.01)
                seen = await look(other)
                assert (seen.kind, seen.highest_fence) == (kind, lease.fence)
                assert [node.fence_counter for node in seen.nodes] == [lease.fence] * 3
                assert [node.fence_counter for node in await other.inspect(NAME)] == [lease.fence] * 3
        async with w.manager.election(NAME).campaign() as leadership:
            seen = await look(other)
            assert (seen.kind, seen.highest_fence) == ("leader", leadership.term)
        await asyncio.sleep(0.01)
        seen = await look(other)
        assert (seen.state, seen.highest_fence, seen.nodes[0].fence_counter) == ("free", None, None)


# -- what it cannot tell -----------------------------------------------------------------------------


async def test_a_node_that_is_ahead_or_behind_is_in_the_minority() -> None:
    """One alone tells its own counter; the fence is where a majority that has the holder stands."""
    async with world(5) as w, w.manager.lock(NAME) as lease:
        assert lease.fence is not None
        stand(w.nodes[0], lease.fence + 2)
        stand(w.nodes[1], lease.fence - 2)
        seen = await look(w.manager)
        assert seen.highest_fence == lease.fence
        assert [node.fence_counter for node in seen.nodes][:3] == [
            lease.fence + 2,
            lease.fence - 2,
            lease.fence,
        ]
        w.nodes[2].delete(PREFIX + NAME.encode())  # its counter is no word for the holder
        assert (await look(w.manager)).highest_fence is None
        assert (await look(w.manager)).state == "held"
