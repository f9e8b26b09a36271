"""A disturber takes nodes out of service while clients work: one after the other, and all heal."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence

from aioredlock_ng.testing import LocalNodes
from tests.servers import ask


class Disturber:
    """Strikes some of the nodes at a time, in one way after the other."""

    def __init__(
        self,
        nodes: LocalNodes,
        draw: random.Random,
        kinds: Sequence[str],
        *,
        at_once: int = 2,
        frozen: tuple[float, float] = (0.0, 0.2),
        pause: float = 0.02,
    ) -> None:
        self._nodes, self._draw, self._at_once = nodes, draw, at_once
        self._frozen, self._pause = frozen, pause  # seconds: from the shortest to the longest, and at most
        self._whole = list(range(len(nodes.urls)))
        self._kinds = itertools.cycle(draw.sample(kinds, len(kinds)))
        self.did: Counter[str] = Counter()

    async def disturb(
        self, goes_on: Callable[[], bool] = lambda: True, healed: Callable[[int], object] = lambda _: None
    ) -> None:
        """Do it for as long as something goes on, or until cancelled; all nodes run then.

        `healed` is awaited for each node before it counts as whole again.
        """
        try:
            while goes_on():
                which = self._draw.sample(self._whole, self._at_once)
                for i in which:
                    self._whole.remove(i)
                kind = next(self._kinds)
                for i in which:
                    await self._strike(kind, i)
                await asyncio.sleep(self._draw.uniform(*self._frozen) if kind == "freeze" else 0.0)
                for i in which:
                    self._nodes.resume(i)
                    if (healing := healed(i)) is not None:
                        await healing  # type: ignore[misc]
                self.did[kind] += 1
                self._whole += which
                await asyncio.sleep(self._draw.uniform(0.0, self._pause))
        finally:
            for i in range(len(self._nodes.urls)):
                self._nodes.resume(i)
            self._nodes.start()

    async def _strike(self, kind: str, i: int) -> None:
        if kind == "freeze":
            self._nodes.pause(i)
        elif kind == "restart":
            await self._nodes.restart(i)
        else:
            await asyncio.to_thread(ask, self._nodes.urls[i], "FLUSHALL")
