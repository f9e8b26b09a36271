"""The library aioredlock 0.7.3 over aioredis 1.3.1; asked again when it gives up, after three tries."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from aioredlock import Aioredlock, Lock, LockError

from benchmarks.peers import TTL, Body


@final
class Peer:
    """One manager for all tasks, with the delays that are its defaults."""

    def __init__(self, urls: Sequence[str], **delays: float) -> None:
        self._manager = Aioredlock(list(urls), internal_lock_timeout=TTL, **delays)

    async def open(self) -> None:
        """Connect at first use."""

    async def cycle(self, name: str, body: Body) -> None:
        async with await self.hold(name):
            await body()

    async def hold(self, name: str) -> Lock:
        while True:  # with more tries of its own, several processes block each other for ever
            try:
                return await self._manager.lock(name)
            except LockError:
                continue

    async def drop(self, held: Lock) -> None:
        await self._manager.unlock(held)

    async def close(self) -> None:
        await self._manager.destroy()
