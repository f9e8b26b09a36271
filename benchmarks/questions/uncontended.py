"""How long does a cycle (acquire and release) take without contention?"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.cycles import add_latencies, latency_turn

TABLE = "Uncontended cycle: latency"


async def ask(bench: Bench) -> None:
    peers = bench.peers(lambda spec: not spec.inside)
    async with bench.over(peers) as (_, workers):
        turns = {peer: partial(latency_turn, bench, peer, worker) for peer, (worker,) in workers.items()}
        taken = await bench.turns(turns, cases=1)
    add_latencies(bench, TABLE, taken, workers)
    for peer in workers:
        if cycles := taken[peer].all("cycles"):
            bench.report.curve(TABLE, cycles, loop=bench.loop, peer=peer)
