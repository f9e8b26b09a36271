"""Nodes that are far away, and not always equally far (N6)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aioredlock_ng import LockManager, QuorumUnavailableError
from tests.behaviour.tools import all_up, measured, monitor, monitored_words, no_key_left, quiet
from tests.faults.chaos_proxy import proxied
from tests.faults.two_turns import two_apart
from tests.servers import Nodes

TRIP = 0.12  # seconds to a node and back

TTL = 1.5


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_an_acquire_takes_one_round_trip(fencing: bool, shared_nodes: Nodes) -> None:
    """And so does a release: each is one command to every node, all of them under way at once."""
    urls = shared_nodes.urls
    loop = asyncio.get_running_loop()
    async with (
        quiet(),
        proxied(urls) as proxies,
        LockManager([proxy.url for proxy in proxies], node_timeout=2.0, fencing=fencing) as manager,
    ):
        await all_up(manager)
        for proxy in proxies:
            for way in proxy.ways:
                way.delay = TRIP / 2
        turns = 0

        async def trips() -> float:
            nonlocal turns
            turns += 1
            began = loop.time()
            lease = await manager.lock("far", ttl=20.0).acquire()
            acquired = loop.time()
            await lease.release()
            released = loop.time()
            assert acquired - began >= TRIP
            assert released - acquired >= TRIP
            return max(acquired - began, released - acquired) / TRIP

        async with monitor(urls[0]) as up_to_now:
            await measured(trips, at_most=1.9, what="round trips of an acquire, or of a release")
            lines = [monitored_words(line) for line in await up_to_now()]
        ours = [words for by_script, words in lines if not by_script and "redlock:far" in words]
        assert len(ours) == 2 * turns
    await no_key_left(urls)


async def test_the_first_try_has_its_own_time_behind_the_start(shared_nodes: Nodes) -> None:
    """Connecting takes longer than the try may take, login, questions and greeting each a round trip."""
    trip = 0.5
    async with proxied(shared_nodes.urls) as proxies:
        for way in (way for proxy in proxies for way in proxy.ways):
            way.delay = trip / 2
        urls = [proxy.url for proxy in proxies]
        manager = LockManager(urls, node_timeout=2 * trip, connect_timeout=60)
        async with contextlib.aclosing(manager), manager.lock("far", blocking=False):
            pass


async def too_late(manager: LockManager) -> None:
    """Try free locks until one is not acquired because answers came too late."""
    for number in range(200):
        try:
            async with manager.lock(f"own:{number}", blocking=False):
                pass
        except QuorumUnavailableError as error:
            if any("no answer within" in vote.reason for vote in error.votes):
                return
    raise AssertionError("all answers came in time")


async def test_jitter_around_the_node_timeout(shared_nodes: Nodes) -> None:
    """Some answers come too late and do not count; the holder goes on, the waiter has its turn."""
    urls = shared_nodes.urls
    async with (
        proxied(urls) as by_a,
        proxied(urls) as by_b,
        two_apart([p.url for p in by_a], [p.url for p in by_b], urls, ttl=TTL, node_timeout=0.1) as two,
    ):
        for proxy in by_a + by_b:
            for way in proxy.ways:
                way.jitter = 0.08

        await too_late(two.b.manager)
        await two.a.outlives(TTL)

        assert not two.b.inside.is_set()
        await two.recovered()
