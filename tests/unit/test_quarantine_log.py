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


async def test_one_node_alone(lines):
    """In the singular; not told at all when an `init` has ended it meanwhile.  With two nodes down it does
    not help that the third will vote.
    """
    async with world(3, **FENCED) as w:
        w.nodes[0].flush()
        await asyncio.sleep(0.5)
        assert all(node.done for node in await w.manager.init())
        await asyncio.sleep(FOUND)
        assert lines(logging.WARNING) == []
        w.nodes[0].flush()
        await asyncio.sleep(FOUND)
        (line,) = lines(logging.WARNING)
        assert line.startswith(f"quarantine: node {w.nodes[0].name} has no vote for another 5")
    async with world(3, **FENCED) as w:
        w.nodes[0].flush()
        await asyncio.sleep(0.55)
        for node in w.nodes[1:]:
            node.crash()
        await asyncio.sleep(FOUND)
    words = "and too few of the others are up: "
    assert [words in line for line in lines(logging.WARNING) if line.startswith("quarantine: ")] == [
        False,
        True,
    ]


async def test_a_manager_that_closes_says_no_more(lines):
    """Neither that a quarantine begins, nor that it is over."""
    async with world(3, **FENCED) as w:
        w.nodes[0].flush()
        await asyncio.sleep(0.55)
    await asyncio.sleep(FOUND)
    async with opened(fresh(3), **FENCED):
        pass
    assert sum("quarantine" in line for level in (20, 30, 40) for line in lines(level)) == 1
