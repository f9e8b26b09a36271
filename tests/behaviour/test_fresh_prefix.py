"""A new user of three servers meets a wait with the defaults, a hint how to end it, and its end."""

from __future__ import annotations

import logging
import re
from typing import Final

import pytest

from aioredlock_ng import LockManager, NodeState, QuorumUnavailableError
from tests.behaviour.tools import ALLOWANCE, boot_time, quiet
from tests.servers import QUARANTINE_VARIABLE, Nodes

LONGEST: Final = 61.0  # seconds of the wait


@pytest.fixture(autouse=True)
def _the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a quarantine, as users have it."""
    monkeypatch.delenv(QUARANTINE_VARIABLE)


async def test_a_fresh_prefix_waits_until_it_is_initialised(
    shared_nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why and what ends it, an acquire fails in its time, and `init` ends the wait."""
    caplog.set_level(logging.INFO, logger="aioredlock_ng")
    async with quiet(), LockManager(shared_nodes.urls, prefix="new:", connect_timeout=10.0) as manager:
        began = boot_time()
        with pytest.raises(QuorumUnavailableError, match="restart quarantine") as failure:
            await manager.lock("first", blocking_timeout=0.5).acquire()
        assert 0.5 <= boot_time() - began <= 0.5 + ALLOWANCE
        assert len(failure.value.votes) == 5
        waits = [node.votes_in for node in manager.statistics().nodes]
        assert all(wait is not None and 30 < wait <= LONGEST for wait in waits), waits
        (line,) = [record.message for record in caplog.records if "quarantine" in record.message]
        assert all(url in line for url in shared_nodes.urls)
        assert re.search(r"no lock can be acquired for another (60|[345]\d)\.\d s", line)
        assert "`aioredlock-ng init`" in line
        caplog.clear()

        assert all(node.done for node in await manager.init())
        async with manager.lock("first", blocking_timeout=30.0) as lease:
            lease.check()
        assert {node.state for node in manager.statistics().nodes} == {NodeState.UP}
        (over,) = [record.message for record in caplog.records if "quarantine" in record.message]
        assert over == "the quarantine is over: 5 of 5 nodes may vote"
