"""Two thousand locks on real nodes, and ten browsers that look."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
import redis

from aioredlock_ng import LockManager
from aioredlock_ng._dashboard.feed import REST
from aioredlock_ng.testing import LocalNodes
from tests.dashboard.reading import Page
from tests.dashboard.serving import by_aiohttp

LOCKS = 2000
BROWSERS = 10
LOOKS = 3


def searches(url: str) -> int:
    """Return how many steps of searches a node has done."""
    with redis.Redis.from_url(url) as client:
        return int(client.info("commandstats").get("cmdstat_scan", {}).get("calls", 0))  # type: ignore[union-attr]


async def listen(client: aiohttp.ClientSession, page: Page) -> set[float]:
    """Read so many looks, and return when they were made."""
    looks = set()
    async with client.get("/locks/events") as response:
        while len(page.events) < LOOKS:
            page.hear((await response.content.readuntil(b"\n\n")).decode())
            looks.add(page.head["at"])
    return looks


@pytest.mark.heavy
async def test_ten_browsers_are_one_look(nodes5: LocalNodes) -> None:
    """All see all locks, and the nodes are searched once for all of them, each time.

    What the looks take of a processor is little by construction: the rest between them is by what one took.
    """
    async with LockManager(nodes5.urls, ttl=120) as manager:
        leases = await asyncio.gather(*(manager.lock(f"order:{number}").acquire() for number in range(LOCKS)))
        before = searches(nodes5.urls[0])
        await manager.survey(limit=5000)
        once = searches(nodes5.urls[0]) - before
        async with LockManager(nodes5.urls) as other, by_aiohttp(other, interval=0.2) as url:
            before = searches(nodes5.urls[0])
            pages = [Page() for _ in range(BROWSERS)]
            async with aiohttp.ClientSession(url, read_bufsize=2**24) as client:
                looks = set().union(*await asyncio.gather(*(listen(client, page) for page in pages)))
            assert (searches(nodes5.urls[0]) - before) / once <= len(looks) + 1  # one may be under way
            for page in pages:
                assert page.locks.keys() == {f"order:{number}" for number in range(LOCKS)}
                assert page.head["interval"] > REST * 1e-3
        await asyncio.gather(*(lease.release() for lease in leases))
