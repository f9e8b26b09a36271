"""What does another node cost: 1, 3, 5, 7 and 9 of them?"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.cycles import add_latencies, add_throughput, latency_turn, throughput_turn

LATENCY = "Number of nodes: latency of an uncontended cycle"
THROUGHPUT = "Number of nodes: throughput of many tasks"
TABLES = (LATENCY, THROUGHPUT)


async def ask(bench: Bench) -> None:
    peers, settings = (
        bench.peers(lambda spec: spec.quorum and spec.can("latency", "throughput")),
        bench.settings,
    )
    for number in settings.nodes:
        bench.say(f"  {number} nodes")
        async with bench.over(peers, number) as (_, workers):
            ways = {
                "latency": {
                    peer: partial(latency_turn, bench, peer, worker) for peer, (worker,) in workers.items()
                },
                "throughput": {
                    peer: partial(throughput_turn, bench, peer, worker, settings.crowd)
                    for peer, (worker,) in workers.items()
                },
            }
            cases = len(settings.nodes) * len(ways)
            taken = {way: await bench.turns(turns, cases=cases, warm=True) for way, turns in ways.items()}
        add_latencies(bench, LATENCY, taken["latency"], workers, nodes=number)
        add_throughput(bench, THROUGHPUT, taken["throughput"], workers, nodes=number)
