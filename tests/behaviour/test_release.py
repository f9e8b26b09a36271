"""After the release nothing is sent, whatever else was going on (rule R6)."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from aioredlock_ng import ExtensionPolicy, LockManager
from aioredlock_ng import ReleaseOutcome as Outcome
from tests.batches import singles
from tests.behaviour.tools import all_up, keys, monitor, monitored_words, quiet
from tests.servers import Nodes, ask, eventually, kill_connections
from tests.unit.traces import SCRIPTS


@pytest.mark.heavy
async def test_nothing_follows_a_release(shared_nodes: Nodes) -> None:
    """A server is sent nothing for an owner after its release: neither by an extension nor by a repair."""
    url, often = shared_nodes.urls[0], ExtensionPolicy(every=0.01, max_extensions=None)
    async with (
        quiet(),
        monitor(url) as view,
        LockManager(shared_nodes.urls, ttl=3.0, extension=often) as manager,
    ):
        for number in range(40):
            lease = await manager.lock("forgotten").acquire()
            ask(url, "DEL", "redlock:forgotten")
            for _ in range(number):
                await asyncio.sleep(0)
            asking = asyncio.create_task(lease.extend()) if number % 2 else None
            await lease.release()
            assert keys(shared_nodes.urls) == {}
            if asking is not None:
                await asyncio.wait((asking,))
                asking.exception()
        sent: dict[str, list[str]] = defaultdict(list)
        heard = [words for script, words in map(monitored_words, await view()) if not script]
        asked = [[word.encode() for word in words] for words in heard if words[0] == "EVALSHA"]
        for single in (single for words in asked for single in singles(words)):
            if (kind := SCRIPTS[single[1]]) in ("acquire", "raise", "extend", "repair", "release"):
                sent[single[3 + int(single[2])].decode()].append(kind)
        assert len(sent) == 40
        assert all(history.index("release") == len(history) - 1 for history in sent.values()), sent


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
        await eventually(
            lambda: not any(node.in_flight + node.pending_releases for node in manager.statistics().nodes)
        )
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
