"""How long does a cycle (acquire and release) take without contention?

With names that are used once, and with names that are used in turn.
"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.cycles import IN_TURN, ONCE, add_latencies, latency_turn

TABLE = "Uncontended cycle: latency"
NAMES = (ONCE, IN_TURN)


async def ask(bench: Bench) -> None:
    peers = bench.peers(lambda spec: spec.can("latency") and not spec.inside)
    for names in NAMES:
        async with bench.over(peers) as (_, workers):
            turns = {
                peer: partial(latency_turn, bench, peer, worker, names) for peer, (worker,) in workers.items()
            }
            taken = await bench.turns(turns, cases=len(NAMES))
        add_latencies(bench, TABLE, taken, workers, names=names)
        for peer in workers if names == ONCE else ():
            if cycles := taken[peer].all("cycles"):
                bench.report.curve(TABLE, cycles, loop=bench.loop, peer=peer)
