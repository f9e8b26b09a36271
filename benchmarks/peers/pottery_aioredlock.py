"""The class AIORedlock of pottery 3, over clients of redis-py."""
# ruff: noqa: D102 SLF001 (`benchmarks.peers` says what they are for; pottery has no option for its delay)

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from pottery import AIORedlock
from redis.asyncio import Redis

from benchmarks.peers import TTL, Body


@final
class Peer:
    """One client per node; one object per lock, as in its documentation."""

    def __init__(self, urls: Sequence[str], *, retry_delay: float = AIORedlock._RETRY_DELAY) -> None:
        self._masters = {Redis.from_url(url) for url in urls}
        self._lock = type("Lock", (AIORedlock,), {"_RETRY_DELAY": retry_delay})

    async def open(self) -> None:
        """Connect at first use."""

    async def cycle(self, name: str, body: Body) -> None:
        async with self._lock(key=name, masters=self._masters, auto_release_time=TTL):
            await body()

    async def close(self) -> None:
        for master in self._masters:
            await master.aclose()
