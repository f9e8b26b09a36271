"""One line and one event when no lock can be acquired any more, and when one can again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioredlock_ng import Hooks
from aioredlock_ng._session.quorum_log import STANDS
from aioredlock_ng.events import QuorumChanged
from aioredlock_ng.testing import MemoryNode
from tests.unit.test_quarantine import FENCED, QUARANTINE
from tests.unit.worlds import LATENCY, opened, world

FOUND = 5.0
"""Seconds in which heartbeats find out that a node is frozen or back, and that stands."""


class Heard(Hooks):
    """What is told of the quorum."""

    def __init__(self) -> None:
        self.events: list[QuorumChanged] = []

    def on_quorum_changed(self, event: QuorumChanged) -> None:
        """Keep it."""
        self.events.append(event)


@pytest.fixture
def lines(caplog):
    """Return a function that gives what was logged of the quorum."""
    caplog.set_level(logging.INFO, logger="aioredlock_ng")

    def logged():
        return [line for line in caplog.messages if "no lock can" in line or "again" in line]

    return logged


@pytest.mark.parametrize("lost", ["freeze", "crash", "refuse"])
async def test_an_outage_and_its_end_are_told_once(lost, lines):
    """Whatever ails the nodes: they do not answer, are gone, or take no writes; one more changes nothing."""
    heard = Heard()
    async with world(5, hooks=[heard]) as w:
        for node in w.nodes[:2]:
            node.freeze()
        await asyncio.sleep(FOUND)
        assert (lines(), heard.events) == ([], [])
        for node in w.nodes[2:4]:
            node.refuse("OOM command not allowed") if lost == "refuse" else getattr(node, lost)()
            await asyncio.sleep(FOUND)
        (line,) = lines()
        assert line.startswith("no lock can be acquired any more: 2 of 5 nodes are up, 3 are needed (")
        assert all(f"{node.name} is " in line for node in w.nodes[:3])
        (event,) = heard.events
        assert (event.available, event.up, event.needed) == (False, 2, 3)
        assert event.reason in line
        for node in w.nodes[:2]:
            node.thaw()
        await asyncio.sleep(FOUND)
        _, line = lines()
        assert line.startswith("locks can be acquired again, after ")
        _, event = heard.events
        assert (event.available, event.up) == (True, 3)
        assert 0 < event.lasted < 4 * FOUND
    assert len(heard.events) == 2, "the end of a manager is none of a quorum"


async def test_a_connection_that_is_made_again_at_once_is_no_outage(lines):
    """Nor many of them."""
    heard = Heard()
    async with world(3, hooks=[heard]) as w:
        for _ in range(20):
            for node in w.nodes:
                node.disconnect()
            await asyncio.sleep(STANDS)
        assert (lines(), heard.events) == ([], [])


async def test_a_start_without_a_majority_is_no_outage(lines):
    """Nothing could be acquired before, either; and that it can at last is no news of that kind."""
    heard, nodes = Heard(), [MemoryNode(latency=LATENCY) for _ in range(3)]
    for node in nodes:
        node.crash()
    async with opened(nodes, hooks=[heard]) as manager:
        await asyncio.sleep(FOUND)
        for node in nodes:
            node.restart()
        await asyncio.sleep(FOUND)
        assert manager.available
        assert (lines(), heard.events) == ([], [])


async def test_a_quarantine_has_its_own_line(lines):
    """Only the event is told of it."""
    heard = Heard()
    async with world(3, hooks=[heard], **FENCED) as w:
        await w.manager.init()
        await asyncio.sleep(FOUND)
        for node in w.nodes:
            node.flush()
        await asyncio.sleep(QUARANTINE * 1.01 + FOUND)
        assert [event.available for event in heard.events] == [False, True]
        assert [line for line in lines() if not line.startswith("quarantine: ")] == []
