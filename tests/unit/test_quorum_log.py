"""One line and one event when no lock can be acquired any more, and when one can again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioredlock_ng import Hooks
from aioredlock_ng.events import QuorumChanged
from tests.unit.worlds import world

FOUND = 5.0
"""Seconds in which heartbeats find out that a node is frozen or back, and that stands."""


class Heard(Hooks):
    """Events about the quorum."""

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
