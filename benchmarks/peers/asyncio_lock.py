"""A plain `asyncio.Lock` per name: what is left when nothing is asked of any node."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import final

from benchmarks.peers import Body


@final
class Peer:
    """Locks inside one process."""

    def __init__(self, _: Sequence[str]) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        """Nothing to do."""

    async def cycle(self, name: str, body: Body) -> None:
        async with self._locks[name]:
            await body()

    async def close(self) -> None:
        """Nothing to do."""
