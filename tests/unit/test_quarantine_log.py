"""A quarantine in the log: one line for all nodes when it begins, and one when it is over (R12)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.unit.test_quarantine import FENCED, QUARANTINE
from tests.unit.test_stray_clients import fresh
from tests.unit.worlds import opened

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
