"""How many round trips does an acquire take, when they are long?"""

from __future__ import annotations

from functools import partial

from aioredlock_ng.testing import local_nodes
from benchmarks.bench import NODES, Bench
from benchmarks.cycles import median, p50, rate, throughput_turn
from benchmarks.proxy import proxies
from benchmarks.servers import round_trip

TABLE = "Far nodes: acquire in round trips, distinct names"


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.can("throughput") and not spec.inside), bench.settings
    crowds = (1, settings.crowd)
    for trip in settings.trips:
        bench.say(f"  {trip * 1000:g} ms")
        async with (
            local_nodes(NODES, server=settings.server) as nodes,
            proxies(nodes.urls, trip) as urls,
            bench.open(peers, urls) as workers,
        ):
            measured = round_trip(urls[0])
            for tasks in crowds:
                turns = {
                    peer: partial(throughput_turn, bench, peer, worker, tasks, trip=trip)
                    for peer, (worker,) in workers.items()
                }
                taken = await bench.turns(turns, cases=len(settings.trips) * len(crowds), warm=True)
                for peer in workers:
                    acquire = median(taken[peer], p50("acquires"))
                    bench.report.add(
                        TABLE,
                        loop=bench.loop,
                        round_trip_ms=trip * 1000,
                        ping_ms=measured * 1000,
                        tasks=tasks,
                        peer=peer,
                        acquire_p50_ms=acquire and acquire * 1000,
                        acquire_p50_in_round_trips=acquire and acquire / trip,
                        to_floor=taken[peer].to(taken.get("floor"), p50("acquires")),
                        cycles_per_s=median(taken[peer], rate),
                        turns=len(taken[peer].figures),
                        trouble=taken[peer].trouble,
                    )
