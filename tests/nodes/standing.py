"""How the nodes of a manager stand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aioredlock_ng import LockManager, NodeState
from tests.servers import eventually


def state(manager: LockManager, i: int = 0) -> NodeState:
    """Return where a manager's node stands."""
    return manager.statistics().nodes[i].state


async def up(manager: LockManager, within: float = 60.0) -> None:
    """Wait until every node is up: a second after its return, where the machine does nothing else."""
    await eventually(
        lambda: all(node.state is NodeState.UP for node in manager.statistics().nodes),
        within=within,
        what=repr(manager.statistics()),
    )


@contextlib.asynccontextmanager
async def running(nodes: Iterable[Any], **options: Any) -> AsyncIterator[LockManager]:
    """Run a manager over nodes, all of which are up."""
    async with LockManager(nodes, **options) as manager:
        await up(manager)
        yield manager
