"""A quarantine in the log: one line for all nodes when it begins, and one when it is over (R12)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import pytest

from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import LATENCY, make, opened, virtual, world

QUARANTINE: Final = 60.0
FOUND: Final = 2.0
"""Seconds in which heartbeats find out, and the log says so."""

INIT: Final = "; if no lock can be alive, `aioredlock-ng init` ends the wait"


@pytest.fixture(autouse=True)
def _log_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aioredlock_ng")


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return what was logged on a level since the last time that this was asked for any."""
    found = [record.getMessage() for record in caplog.records if record.levelno == level]
    assert all("is up" not in line for line in found if "quarantine" in line)
    return found


def fresh(number: int) -> list[MemoryNode]:
    """Make nodes of which it is not known whether they were used before."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(number)]
    for node in nodes:
        node.flush()
    return nodes


@pytest.mark.parametrize("number", [3, 5])
@virtual
async def test_fresh_nodes_are_one_line(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged before the first lock is refused, names all nodes, and says what to do; so is its end."""
    nodes = fresh(number)
    async with opened(nodes, restart_quarantine=QUARANTINE) as manager:
        (line,) = lines(caplog, logging.WARNING)
        names = ", ".join(node.name for node in nodes)
        assert line.startswith(f"quarantine: nodes {names} have no vote")
        assert "no vote for another 60.6 s, and no lock can be acquired for another 60.6 s: " in line
        assert line.endswith(INIT)
        assert lines(caplog, logging.INFO) == []
        await asyncio.sleep(QUARANTINE * 1.01 + FOUND)
        over = f"the quarantine is over: {number} of {number} nodes may vote"
        assert lines(caplog, logging.INFO) == [over]
        assert len(lines(caplog, logging.WARNING)) == 1
        async with manager.lock("a", blocking_timeout=0):
            pass


@virtual
async def test_nodes_that_forget_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whenever their heartbeats find out; those that join later are another one."""
    async with world(5, restart_quarantine=QUARANTINE) as w:
        caplog.clear()
        for node in w.nodes[:2]:
            node.flush()
            await asyncio.sleep(0.2)
        await asyncio.sleep(FOUND)
        (line,) = lines(caplog, logging.WARNING)
        assert f"nodes {w.nodes[0].name}, {w.nodes[1].name} have no vote" in line
        assert "the other nodes grant locks meanwhile" in line
        w.nodes[2].flush()
        await asyncio.sleep(FOUND)
        _, line = lines(caplog, logging.WARNING)
        assert all(node.name in line for node in w.nodes[:3])
        assert "no lock can be acquired for another 5" in line
        await asyncio.sleep(QUARANTINE - FOUND)
        assert lines(caplog, logging.INFO) == []
        await asyncio.sleep(2 * FOUND)
        assert lines(caplog, logging.INFO) == ["the quarantine is over: 5 of 5 nodes may vote"]


@virtual
async def test_one_node_alone(caplog: pytest.LogCaptureFixture) -> None:
    """In the singular; what is short is not told at all when an `init` has ended it meanwhile."""
    async with world(3, restart_quarantine=QUARANTINE) as w:
        caplog.clear()
        w.nodes[0].flush()
        await asyncio.sleep(0.5)
        assert all(node.done for node in await w.manager.init())
        await asyncio.sleep(FOUND)
        assert lines(caplog, logging.WARNING) == []
        w.nodes[0].flush()
        await asyncio.sleep(FOUND)
        (line,) = lines(caplog, logging.WARNING)
        assert line.startswith(f"quarantine: node {w.nodes[0].name} has no vote for another 5")


@virtual
async def test_a_stray_use_is_not_answered_by_an_init(caplog: pytest.LogCaptureFixture) -> None:
    """All nodes of the quorum wait: one line, beside the error that says whose the node was."""
    async with world(3, restart_quarantine=QUARANTINE) as w:
        w.nodes[0].flush()
        stray: Any = make(w.nodes[:1], seed=99)
        async with stray:
            await asyncio.sleep(FOUND)
        warnings = [line for line in lines(caplog, logging.WARNING) if line.startswith("quarantine: ")]
        assert len(warnings) == 1
        assert warnings[0].endswith("a node of this quorum was another's")
        assert "no lock can be acquired for another 6" in warnings[0]
        await asyncio.sleep(QUARANTINE * 1.01 + 2 + FOUND)
        assert "the quarantine is over: 3 of 3 nodes may vote" in lines(caplog, logging.INFO)


@virtual
async def test_too_few_others(caplog: pytest.LogCaptureFixture) -> None:
    """With two nodes down it does not help that the third will vote."""
    async with world(3, restart_quarantine=QUARANTINE) as w:
        w.nodes[0].flush()
        await asyncio.sleep(0.55)
        for node in w.nodes[1:]:
            node.crash()
        await asyncio.sleep(FOUND)
    assert (
        "no lock can be acquired, since too few of the others are up: " in lines(caplog, logging.WARNING)[-1]
    )


@virtual
async def test_a_manager_that_closes_says_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Neither that a quarantine begins, nor that it is over."""
    async with world(3, restart_quarantine=QUARANTINE) as w:
        caplog.clear()
        w.nodes[0].flush()
        await asyncio.sleep(0.55)
    await asyncio.sleep(FOUND)
    async with opened(fresh(3), restart_quarantine=QUARANTINE):
        pass
    assert len([r for r in caplog.records if "quarantine" in r.getMessage()]) == 1
