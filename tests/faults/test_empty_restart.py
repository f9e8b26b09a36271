"""Nodes that forget what they granted: restarted empty or with old data, or flushed (A2, R12).

With a quarantine no other client gets a lock that is held.  Without one another does, and the fence tells the
two apart: the lock is lost, the data behind it is not.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE
from tests.faults.accounts import GUARDED, filled
from tests.faults.contention import contention, votes_again
from tests.faults.losses import LOSSES, PERSISTENT, Loss, kept, restart_older
from tests.faults.on_three import COUNTER, HOLDING, KEY, NAME, held_on_three, waits_for_its_end
from tests.servers import ask, eventually

NAMES: Final = [f"name-{number}" for number in range(6)]

# -- A has exactly three of five, and one of these forgets it --------------------------------------


async def restart_as_it_was(nodes: LocalNodes, i: int, _older: Path) -> None:
    """Restart a server with what it had written down when it was killed."""
    await nodes.restart(i)


@pytest.mark.parametrize(
    ("lose", "fsync", "fencing"),
    [
        *((lose, "always", fencing) for lose in LOSSES for fencing in (True, False)),
        (restart_as_it_was, "always", True),
        (restart_as_it_was, "everysec", True),
        (restart_older, "everysec", True),
    ],
)
async def test_no_client_gets_a_lock_that_a_node_forgot(
    lose: Loss, fsync: str, fencing: bool, make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """With a quarantine B must wait until A's lease has ended, though a majority of nodes is free.

    Whatever is in the file of a server that comes back, and whether the lock is.
    """
    nodes = make_nodes(5, options=PERSISTENT | {"appendfsync": fsync})
    struck, older = HOLDING[0], tmp_path / "older"
    shutil.copytree(kept(nodes, struck), older)
    async with held_on_three(nodes, ttl=4.0, restart_quarantine=6.0, fencing=fencing) as (by_a, b):
        assert bool(by_a._holding.fence) == fencing
        await lose(nodes, struck, older)
        remembers = bool(ask(nodes.urls[struck], "EXISTS", KEY))
        assert remembers == (lose is restart_as_it_was) or fsync == "everysec"

        await waits_for_its_end(b, by_a)


@pytest.mark.parametrize("lose", LOSSES)
async def test_without_a_quarantine_there_are_two_holders_and_the_fence_knows_the_later_one(
    lose: Loss, make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """Exclusion is broken while A's lease is valid; the account takes B's write and refuses A's."""
    nodes, older = make_nodes(5, options=PERSISTENT), tmp_path / "older"
    shutil.copytree(kept(nodes, HOLDING[0]), older)
    path = str(tmp_path / "bank.sqlite")
    with filled("sqlite", path):
        account = GUARDED["sqlite"](path)
        async with held_on_three(nodes, ttl=12.0, restart_quarantine=0.0) as (by_a, b):
            assert await account.write(101, by_a.fence)
            await lose(nodes, HOLDING[0], older)

            by_b = await b.lock(NAME, blocking_timeout=PATIENCE).acquire()

            assert by_a.remaining > 0, "B has not waited for A"
            assert by_a.held
            by_a.check()
            assert by_a.fence < by_b.fence
            assert await account.write(102, by_b.fence)
            assert not await account.write(103, by_a.fence)
            assert await account.read(by_b.fence) == 102


# -- more than one node ----------------------------------------------------------------------------


async def test_all_nodes_restored_from_an_older_backup(
    make_nodes: Callable[..., LocalNodes], tmp_path: Path
) -> None:
    """Even when every node has gone back to its old counters, fences go on from where they were."""
    nodes = make_nodes(3, options=PERSISTENT)
    async with LockManager(nodes.urls, ttl=1.0, restart_quarantine=1.0) as manager:
        async with manager.lock(NAME) as before:
            pass
        for i in range(3):
            shutil.copytree(kept(nodes, i), tmp_path / str(i))
        for _ in range(20):
            async with manager.lock(NAME) as last:
                pass
        for i in range(3):
            await restart_older(nodes, i, tmp_path / str(i))
        assert [int(ask(url, "GET", COUNTER)) for url in nodes.urls] == [before.fence] * 3

        async with manager.lock(NAME, blocking_timeout=PATIENCE) as after:
            assert before.fence < last.fence < after.fence
        assert manager.statistics().quarantined == 3


def holders(nodes: LocalNodes) -> list[set[bytes]]:
    """Return whose keys the servers have, for each of the names."""
    keys = [f"redlock:{name}" for name in NAMES]
    values = [ask(url, "MGET", *keys) for url in nodes.urls]
    return [set(of_name) - {None} for of_name in zip(*values, strict=True)]


async def held_anew(nodes: LocalNodes) -> None:
    """Wait until each of the names has had two holders that did not have it before."""
    before = holders(nodes)
    since: list[set[bytes]] = [set() for _ in NAMES]

    def all_twice() -> bool:
        for seen, old, new in zip(since, before, holders(nodes), strict=True):
            seen.update(new - old)
        return all(len(seen) >= 2 for seen in since)

    await eventually(all_twice, within=PATIENCE, what="every name is held again")


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_a_rolling_restart_under_contention(fencing: bool, nodes5: LocalNodes) -> None:
    """All five are restarted, one after the other, faster than their quarantines: no second holder."""
    draw = random.Random()
    async with contention(
        nodes5.urls,
        apart=(-1.0, 0.0, 1.0),
        names=NAMES,
        inside=0.5,
        retry=0.05,
        ttl=1.0,
        restart_quarantine=1.0,
        fencing=fencing,
    ) as contenders:
        for _ in range(2):
            await held_anew(nodes5)
            for i in draw.sample(range(5), 5):
                await nodes5.restart(i)
        for url in nodes5.urls:
            await votes_again(url)
        whole = time.monotonic()
        await held_anew(nodes5)
        contenders.stop()
        await contenders.ended(within=PATIENCE)

    print(f"{contenders.number} claims; {contenders.counts}")
    for claims in contenders.claims.values():
        assert any(claim.start > whole for claim in claims), "it has recovered"
