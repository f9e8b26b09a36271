"""What happens to the nodes while the load runs: a minority at a time, and all heal."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Final

from aioredlock_ng.testing import LocalNodes
from tests.load.work import QUARANTINE
from tests.servers import ask, kill_connections

# Seconds after which a restarted node votes again, whichever client looks.
HEAL: Final = QUARANTINE * 1.01 + 1.0


async def trouble(nodes: LocalNodes, random: Random, counts: Counter[str]) -> None:
    """Freeze, kill or disconnect one or two of five nodes again and again; ends healed when cancelled."""
    try:
        while True:
            await asyncio.sleep(random.uniform(0.5, 3.0))
            which = random.sample(range(len(nodes.urls)), random.choice([1, 1, 2]))
            kind = random.choice(["freeze", "freeze", "restart", "disconnect", "scripts"])
            counts[f"faults: {kind}"] += 1
            for i in which:
                if kind == "freeze":
                    nodes.pause(i)
                elif kind == "restart":
                    await nodes.restart(i)
                elif kind == "disconnect":
                    await asyncio.to_thread(kill_connections, nodes.urls[i])
                else:
                    await asyncio.to_thread(ask, nodes.urls[i], "SCRIPT FLUSH")
            if kind == "freeze":
                await asyncio.sleep(random.choice([0.05, 0.5, 4.0]))
            for i in which:
                nodes.resume(i)
            if kind == "restart":
                await asyncio.sleep(HEAL)
    finally:
        for i in range(len(nodes.urls)):
            nodes.resume(i)
