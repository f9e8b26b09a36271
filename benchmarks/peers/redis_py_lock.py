"""The Lock of redis-py, on the first node alone: no Redlock, but what most programs use."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from redis.asyncio import Redis

from benchmarks.peers import TTL, Body


@final
class Peer:
    """One client; one lock object per acquisition, with the sleep that is its default."""

    def __init__(self, urls: Sequence[str], *, sleep: float = 0.1) -> None:
        self._client = Redis.from_url(urls[0])
        self._sleep = sleep

    async def open(self) -> None:
        await self._client.ping()

    async def cycle(self, name: str, body: Body) -> None:
        async with self._client.lock(name, timeout=TTL, sleep=self._sleep):
            await body()

    async def close(self) -> None:
        await self._client.aclose()
