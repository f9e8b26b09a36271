"""A process that stood still: the first call finds out in its own time whether connections are forgotten."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from aioredlock_ng import NodeState
from tests.simulation.wires import WiredNode
from tests.unit.tasks import sim, turns
from tests.unit.worlds import TTL, states, world

PAUSE = 600.0
HEARTBEAT = 0.5


def forget_connections(server: WiredNode) -> None:
    """Let what is sent on the present connections go nowhere, as behind a NAT that has forgotten them."""
    for wire in server.wires:
        nowhere = copy.copy(wire)
        nowhere.lanes, wire.lanes = wire.lanes, []
        nowhere.cut()
        for lane in nowhere.lanes:
            lane.wire = nowhere


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.25, 0.4, 0.49])
async def test_the_first_call_after_a_pause_finds_new_connections(phase: float) -> None:
    """Within its own second, whenever the process stood still between two heartbeats."""
    async with world() as w:
        await asyncio.sleep(3 + phase)
        for server in w.nodes:
            forget_connections(server)
        sim().suspend(PAUSE)
        began = sim().time()
        async with w.manager.lock("a", blocking_timeout=1.0) as lease:
            assert sim().time() - began <= 1.0
            assert lease.held
        await turns(3)


async def test_a_connection_that_is_well_is_kept_after_a_pause() -> None:
    """One that answers goes on; a server that stands still costs its own connection, and nothing else."""
    async with world() as w:
        await asyncio.sleep(3)
        nodes: list[Any] = list(w.manager._life.nodes)
        links = [node._link for node in nodes]
        w.nodes[2].freeze()
        sim().suspend(PAUSE)
        async with w.manager.lock("a", blocking_timeout=1.0):
            await asyncio.sleep(2 * HEARTBEAT)
        assert [node._link for node in nodes[:2]] == links[:2]
        assert states(w)[2] is NodeState.DOWN
        w.nodes[2].thaw()
        await asyncio.sleep(TTL)
        assert states(w) == [NodeState.UP] * 3
