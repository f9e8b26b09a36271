"""After the release nothing is sent, whatever else was going on (rule R6)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from typing import Final

import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LockManager, QuorumUnavailableError
from aioredlock_ng import ReleaseOutcome as Outcome
from tests.batches import singles
from tests.behaviour.tools import all_up, extended, keys, monitor, monitored_words, quiet, strike
from tests.servers import Nodes, eventually, kill_connections
from tests.unit.worlds import SCRIPTS

RACES: Final = 1000
AT_ONCE: Final = 50
OFTEN: Final = ExtensionPolicy(every=0.01, max_extensions=None)


def histories(lines: list[str]) -> dict[str, list[str]]:
    """Return what one server was sent for each owner value, in order."""
    result: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        by_script, words = monitored_words(line)
        if by_script or words[:1] != ["EVALSHA"]:
            continue
        for single in singles([word.encode() for word in words]):
            kind = SCRIPTS[single[1]]
            if kind in (
                "acquire",
                "raise",
                "extend",
                "top-up",
                "release",
            ):  # owner first
                result[single[3 + int(single[2])].decode()].append(kind)
    return result


@pytest.mark.heavy
async def test_nothing_follows_a_release(shared_nodes: Nodes) -> None:
    """In 1,000 races of release and extension no node is sent anything for an owner after its release."""
    seed = random.randrange(2**32)
    print("seed:", seed)
    rng = random.Random(seed)
    raced = 0

    async def extend(lease: Lease) -> None:
        with contextlib.suppress(LockLostError, QuorumUnavailableError):
            await lease.extend()

    async def race(number: int) -> None:
        nonlocal raced
        lease = await manager.lock(f"raced:{number}").acquire()
        await extended(lease, 1)
        asking = asyncio.create_task(extend(lease)) if number % 2 else None
        if asking is None:
            await asyncio.sleep(rng.random() * 0.04)
        else:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            raced += not asking.done()
        report = await lease.release()
        assert report.count(Outcome.RELEASED) == len(shared_nodes.urls)
        if asking is not None:
            await asking

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(quiet())
        views = [await stack.enter_async_context(monitor(url)) for url in shared_nodes.urls]
        manager = LockManager(shared_nodes.urls, ttl=3.0, extension=OFTEN)
        await stack.enter_async_context(manager)
        for start in range(0, RACES, AT_ONCE):
            await asyncio.gather(*(race(number) for number in range(start, start + AT_ONCE)))
        assert keys(shared_nodes.urls) == {}
        await asyncio.sleep(0.1)  # three extension intervals: what should not come has had its time
        for view in views:
            sent = histories(await view())
            assert len(sent) == RACES
            for owner, (first, *between, last) in sent.items():
                assert (first, last) == ("acquire", "release"), (owner, between)
                assert {"extend"} <= set(between) <= {"extend", "top-up"}, (owner, between)
        assert raced >= RACES // 10, "release and extension hardly met"


async def test_releases_that_a_node_missed_are_made_up_for(nodes3: Nodes) -> None:
    """A node that is frozen during the release gives the key up when it goes on; the report says so."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        lease = await manager.lock("missed", ttl=60).acquire()
        await eventually(lambda: len(keys(nodes3.urls)) == 3, what="all have it")
        nodes3.pause(0)
        report = await lease.release()
        assert [node.outcome for node in report.nodes] == [Outcome.UNKNOWN, *[Outcome.RELEASED] * 2]
        assert await lease.release() == report
        nodes3.resume(0)
        await eventually(lambda: not keys(nodes3.urls), what="the key is gone")
        await eventually(lambda: not any(node.in_flight + node.owed for node in manager.statistics().nodes))
        assert (await lease.release()).count(Outcome.RELEASED) == 3


@pytest.mark.heavy
async def test_releases_that_a_lost_connection_took_along_are_made_up_for(nodes3: Nodes) -> None:
    """A release whose connection is killed on its way is sent again on the next one."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        for _ in range(10):
            lease = await manager.lock("killed", ttl=60).acquire()
            await eventually(lambda: len(keys(nodes3.urls)) == 3, what="all have it")
            for url in nodes3.urls:
                kill_connections(url)
            await lease.release()
            await eventually(lambda: not keys(nodes3.urls), what="the key is gone")
            await all_up(manager)


async def test_a_failing_node_does_not_fail_the_release(nodes3: Nodes) -> None:
    """No failure of nodes makes a release raise, not even of all of them, by hand or at a block's end."""
    async with quiet(), LockManager(nodes3.urls) as manager:
        async with manager.lock("failing"):
            lease = await manager.lock("by hand").acquire()
            strike(nodes3, "dead", 0, 1, 2)
        assert (await lease.release()).count(Outcome.UNKNOWN) == 3
