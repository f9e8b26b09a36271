"""Fences grow, on real servers, whatever happens to a minority of them and to the clocks of the clients."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE
from tests.faults.contention import contention, may_vote
from tests.faults.disturber import Disturber
from tests.servers import eventually

APART: Final = (-3600.0, -1.0, 1.0, 3600.0)  # seconds by which the clocks of each process are ahead

CLAIMS: Final = 5_000
QUARANTINE: Final = 1.0


@pytest.mark.timeout(300)
async def test_fences_grow_over_thousands_of_acquisitions(nodes5: LocalNodes) -> None:
    """Four processes contend while two nodes at a time are frozen, restarted empty, or flushed."""
    seed = random.randrange(10**6)
    kinds = ("freeze", "restart", "flush")  # frozen for longer than the ttl, too
    disturbers = [
        Disturber(nodes5, random.Random(seed + i), kinds, at_once=1, frozen=(0.05, 1.5), pause=1.0)
        for i in (0, 1)
    ]
    disturbers[1]._whole = disturbers[0]._whole
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

        async def votes_again(i: int) -> None:
            """Wait until a node that lost its memory may vote, or no client is left to greet it."""
            url = nodes5.urls[i]
            await eventually(lambda: may_vote(url) or not contenders.goes_on, within=PATIENCE, what=url)

        for disturber in disturbers:
            tasks.create_task(disturber.disturb(lambda: contenders.goes_on, votes_again))
        tasks.create_task(contenders.ended(within=240))
    took = time.monotonic() - began

    counts, did = contenders.counts, disturbers[0].did + disturbers[1].did
    print(
        f"seed {seed}: {contenders.number / took:.0f} acquisitions/s for {took:.1f} s, "
        f"{contenders.handovers} from process to process; {counts['certified'] / contenders.number:.1%} "
        f"certified at once, {counts['raised']} raised, {counts['uncertified']} tries without a fence, "
        f"{counts['lost']} leases lost; faults: {did}"
    )
    assert contenders.number == CLAIMS
    assert contenders.handovers > CLAIMS / 20
    assert counts["raised"] > 0
    assert all(did.get(fault) for fault in kinds), did
