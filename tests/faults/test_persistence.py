"""Nodes that come back with data: what they wrote down last, or an older copy of it.

Either is another process with another `run_id`, and the data do not show whether something is missing
(A2): there is a quarantine in any case (R12).  ``test_empty_restart.py`` tells what happens without one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.faults.losses import kept, restart_older
from tests.faults.on_three import HOLDING, KEY, held_on_three, waits_for_its_end
from tests.faults.two_turns import two_turns
from tests.servers import ask, eventually

TTL: Final = 2.0  # seconds without an extension; the restart quarantine, too

EXTENDED: Final = 1.2  # the same for a lease that is extended


async def restart_as_it_was(nodes: LocalNodes, i: int, _older: Path) -> None:
    """Restart a server with what it had written down when it was killed."""
    await nodes.restart(i)


@pytest.mark.parametrize(
    ("fsync", "restart"),
    [("always", restart_as_it_was), ("everysec", restart_as_it_was), ("everysec", restart_older)],
)
async def test_a_node_that_comes_back_with_its_file_waits(
    fsync: str, restart: Callable[..., object], make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """Whatever is in the file, and whether the lock is: B must wait until A's lease has ended."""
    nodes = make_nodes(5, options={"appendonly": "yes", "appendfsync": fsync})
    struck, older = HOLDING[0], tmp_path / "older"
    shutil.copytree(kept(nodes, struck), older)
    async with held_on_three(nodes, ttl=TTL, restart_quarantine=TTL) as (by_a, b):
        await restart(nodes, struck, older)
        assert ask(nodes.urls[struck], "EXISTS", "redlock:{meta}"), "it has its data"
        if fsync == "always":
            assert ask(nodes.urls[struck], "EXISTS", KEY), "it remembers what it granted"
        elif restart is restart_older:
            assert not ask(nodes.urls[struck], "EXISTS", KEY), "it does not"

        await waits_for_its_end(b, by_a)


async def test_a_lease_outlives_a_rolling_restart_with_older_data(
    make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """Each node is set back to before the lock, when the one before it votes again; B is kept out."""
    nodes = make_nodes(3, options={"appendonly": "yes", "appendfsync": "everysec"})
    for i in range(3):
        shutil.copytree(kept(nodes, i), tmp_path / str(i))
    async with two_turns(nodes.urls, ttl=EXTENDED, restart_quarantine=EXTENDED) as two:
        for i in range(3):
            await restart_older(nodes, i, tmp_path / str(i))
            await eventually(lambda: two.alike, what="A has its key on every node again")
            await two.all_up()
            two.a.lease.check()
            assert not two.b.inside.is_set()
        assert two.a.manager.statistics().topped_up >= 3
        await two.recovered()
        assert two.a.lost is None
