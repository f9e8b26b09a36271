"""The class AsyncRedlock of redlock-ng 2, over redis-py 5."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final

from redlock import AsyncRedlock

from benchmarks.peers import TTL, Body


@final
class Peer:
    """One manager for all tasks, with the delays that are its defaults."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._manager = AsyncRedlock(list(urls))

    async def open(self) -> None:
        """Connect at first use."""

    async def cycle(self, name: str, body: Body) -> None:
        async with self._manager.lock(name, ttl=int(TTL * 1000), blocking=True) as lock:
            assert lock.valid, name
            await body()

    async def close(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._manager.client.instances))
