"""A quarantine in the log: one line for all nodes when it begins, and one when it is over (R12)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.unit.test_quarantine import FENCED, QUARANTINE
from tests.unit.test_stray_clients import fresh
from tests.unit.worlds import opened, world

FOUND = 2.0
"""Seconds in which heartbeats find out, and the log says so."""


@pytest.fixture
def lines(caplog):
    """Return a function that gives what was logged on a level."""
    caplog.set_level(logging.INFO, logger="aioredlock_ng")

    def logged(level):
        found = [record.getMessage() for record in caplog.records if record.levelno == level]
        assert all("is up" not in line for line in found if "quarantine" in line)
        return found

    return logged


@pytest.mark.parametrize("number", [3, 5])
async def test_fresh_nodes_are_one_line(number, lines):
    """It is logged before the first lock is refused, names all nodes, and says what to do; so is its end."""
    nodes = fresh(number)
    async with opened(nodes, **FENCED):
        (line,) = lines(logging.WARNING)
        assert line.startswith(f"quarantine: nodes {', '.join(node.name for node in nodes)} have no vote")
        assert "no vote for another 60.6 s, and no lock can be acquired for another 60.6 s: " in line
        assert line.endswith("; if no lock can be alive, `aioredlock-ng init` ends the wait")
        assert lines(logging.INFO) == []
        await asyncio.sleep(QUARANTINE * 1.01 + FOUND)
        assert lines(logging.INFO) == [f"the quarantine is over: {number} of {number} nodes may vote"]
        assert len(lines(logging.WARNING)) == 1


async def test_nodes_that_forget_together_are_one_line(lines, caplog):
    """Whenever their heartbeats find out; those that join later are another one."""
    async with world(5, **FENCED) as w:
        caplog.clear()
        for node in w.nodes[:2]:
            node.flush()
            await asyncio.sleep(0.2)
        await asyncio.sleep(FOUND)
        (line,) = lines(logging.WARNING)
        assert f"nodes {w.nodes[0].name}, {w.nodes[1].name} have no vote" in line
        assert "the other nodes grant locks meanwhile" in line
        w.nodes[2].flush()
        await asyncio.sleep(FOUND)
        _, line = lines(logging.WARNING)
        assert all(node.name in line for node in w.nodes[:3])
        assert "no lock can be acquired for another 5" in line
        await asyncio.sleep(QUARANTINE - FOUND)
        assert lines(logging.INFO) == []
        await asyncio.sleep(2 * FOUND)
        assert lines(logging.INFO) == ["the quarantine is over: 5 of 5 nodes may vote"]
