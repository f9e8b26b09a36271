"""What does one node of five cost that is frozen, dead, or slow?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from aioredlock_ng.testing import LocalNodes, local_nodes
from benchmarks.bench import NODES, Bench
from benchmarks.cycles import latency_turn, microseconds, p50
from benchmarks.proxy import proxies

TABLE = "One of five nodes fails: uncontended cycle"
SLOW: Final = 0.02
FAULTS: Final = ("frozen", "dead", "slow")


async def ask(bench: Bench) -> None:
    peers, settings = (
        bench.peers(lambda spec: spec.quorum and spec.excludes and spec.can("latency")),
        bench.settings,
    )
    for fault in FAULTS:
        bench.say(f"  one {fault} node")
        async with (
            local_nodes(NODES, server=settings.server) as healthy,
            local_nodes(NODES, server=settings.server) as faulty,
            urls_of(faulty, fault) as urls,
            bench.open(peers, healthy.urls) as well,
            bench.open(peers, urls, first=1) as ill,
        ):
            strike(faulty, fault)
            await asyncio.sleep(settings.settle)  # nor is the first turn kept: what lasts is measured
            turns = {
                (peer, name): partial(latency_turn, bench, peer, workers[peer][0])
                for name, workers in (("healthy", well), (fault, ill))
                for peer in workers
            }
            taken = await bench.turns(turns, cases=len(FAULTS), warm=True)
            faulty.resume(0)
        for key in turns:
            peer, name = key
            if name == "healthy":
                continue
            sick, sound = taken[key], taken[peer, "healthy"]
            bench.report.add(
                TABLE,
                loop=bench.loop,
                one_node=fault,
                peer=peer,
                healthy_p50_us=microseconds(sound, "cycles", 0.5),
                p50_us=microseconds(sick, "cycles", 0.5),
                p50_to_healthy=sick.to(sound, p50("cycles")),
                healthy_p99_us=microseconds(sound, "cycles", 0.99),
                p99_us=microseconds(sick, "cycles", 0.99),
                cycles=len(sick.all("cycles")),
                trouble=sick.trouble,
            )


@contextlib.asynccontextmanager
async def urls_of(nodes: LocalNodes, fault: str) -> AsyncIterator[list[str]]:
    """Give the nodes' URLs; a slow node is behind a proxy from the beginning."""
    if fault != "slow":
        yield nodes.urls
        return
    async with proxies(nodes.urls[:1], SLOW) as moved:
        yield moved + nodes.urls[1:]


def strike(nodes: LocalNodes, fault: str) -> None:
    """Let it happen, to nodes that all peers are connected to."""
    if fault == "frozen":
        nodes.pause(0)
    elif fault == "dead":
        nodes.kill(0)
