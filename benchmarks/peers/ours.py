"""This library; the options say whether plain, fenced or fair."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from aioredlock_ng import Lease, LockManager
from benchmarks.peers import TTL, Body


@final
class Peer:
    """One manager for all tasks."""

    def __init__(self, urls: Sequence[str], *, fair: bool = False, **options: Any) -> None:
        self._fair = fair
        self._manager = LockManager(urls, ttl=TTL, **options)

    async def open(self) -> None:
        await self._manager.start()

    async def cycle(self, name: str, body: Body) -> None:
        async with self._manager.lock(name, fair=self._fair):
            await body()

    async def hold(self, name: str) -> Lease:
        return await self._manager.lock(name).acquire()

    async def drop(self, held: Lease) -> None:
        await held.release()

    async def close(self) -> None:
        await self._manager.aclose()
