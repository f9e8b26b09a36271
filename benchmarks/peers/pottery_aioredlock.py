"""The class AIORedlock of pottery 3, over clients of redis-py."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from pottery import AIORedlock
from redis.asyncio import Redis

from benchmarks.peers import TTL, Body


@final
class Peer:
    """One client per node; one object per lock, as in its documentation."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._masters = {Redis.from_url(url) for url in urls}

    async def open(self) -> None:
        """Connect at first use."""

    async def cycle(self, name: str, body: Body) -> None:
        async with AIORedlock(key=name, masters=self._masters, auto_release_time=TTL):
            await body()

    async def close(self) -> None:
        for master in self._masters:
            await master.aclose()
