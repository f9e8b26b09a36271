"""Fences seen from outside: what nodes have of them, and what that says of the holder's (R10, R43)."""

from __future__ import annotations

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
