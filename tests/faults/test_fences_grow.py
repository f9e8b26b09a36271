"""Fences grow, on real servers, whatever happens to a minority of them and to the clocks of the clients."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE
from tests.faults.contention import contention, may_vote
from tests.servers import ask, eventually

APART: Final = (-3600.0, -1.0, 1.0, 3600.0)  # seconds by which the clocks of each process are ahead

CLAIMS: Final = 5_000
QUARANTINE: Final = 1.0


class Disturber:
    """Takes one node after the other out of service; two of them never take more than two nodes."""

    def __init__(self, nodes: LocalNodes, seed: int) -> None:
        self._nodes = nodes
        self._random = random.Random(seed)
        self._whole = list(range(len(nodes.urls)))
        faults = [self._freeze, self._restart, self._flush]
        self._random.shuffle(faults)
        self._faults = itertools.cycle(faults)
        self.did: Counter[str] = Counter()

    async def disturb(self, goes_on: Callable[[], bool]) -> None:
        """Do it for as long as something goes on."""
        while goes_on():
            fault = next(self._faults)
            i = self._whole.pop(self._random.randrange(len(self._whole)))
            await fault(i)
            await self._votes_again(self._nodes.urls[i], goes_on)
            self.did[fault.__name__] += 1
            self._whole.append(i)
            await asyncio.sleep(self._random.uniform(0.0, 1.0))

    @staticmethod
    async def _votes_again(url: str, goes_on: Callable[[], bool]) -> None:
        """Wait until a node that has lost its memory may vote, or no client is left that would greet it."""
        await eventually(lambda: may_vote(url) or not goes_on(), within=PATIENCE, what=f"{url} may vote")

    async def _freeze(self, i: int) -> None:
        self._nodes.pause(i)
        await asyncio.sleep(self._random.uniform(0.05, 1.5))  # longer than the ttl, too
        self._nodes.resume(i)

    async def _restart(self, i: int) -> None:
        self._nodes.kill(i)
        await asyncio.sleep(self._random.uniform(0.0, 0.5))
        await self._nodes.restart(i)

    async def _flush(self, i: int) -> None:
        ask(self._nodes.urls[i], "FLUSHALL")


@pytest.mark.timeout(300)
async def test_fences_grow_over_thousands_of_acquisitions(nodes5: LocalNodes) -> None:
    """Four processes contend while two nodes at a time are frozen, restarted empty, or flushed."""
    seed = random.randrange(10**6)
    disturber = Disturber(nodes5, seed)
    began = time.monotonic()
    async with (
        contention(
            nodes5.urls,
            apart=APART,
            names=[f"name-{number}" for number in range(8)],
            quota=CLAIMS // len(APART),
            idle=0.004,
            ttl=QUARANTINE,
            restart_quarantine=QUARANTINE,
        ) as contenders,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(2):
            tasks.create_task(disturber.disturb(lambda: contenders.goes_on))
        tasks.create_task(contenders.ended(within=240))
    took = time.monotonic() - began

    counts, did = contenders.counts, dict(disturber.did)
    print(
        f"seed {seed}: {contenders.number / took:.0f} acquisitions/s for {took:.1f} s, "
        f"{contenders.handovers} from process to process; {counts['certified'] / contenders.number:.1%} "
        f"certified at once, {counts['raised']} raised, {counts['uncertified']} tries without a fence, "
        f"{counts['lost']} leases lost; faults: {did}"
    )
    assert contenders.number == CLAIMS
    assert contenders.handovers > CLAIMS / 20
    assert counts["raised"] > 0
    assert all(did.get(fault) for fault in ("_freeze", "_restart", "_flush")), did
