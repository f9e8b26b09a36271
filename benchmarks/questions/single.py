"""One server, no quorum: how does the lock do beside the `Lock` of redis-py, which most programs use?"""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.bench import Bench
from benchmarks.cycles import add_latencies, add_throughput, latency_turn, throughput_turn

LATENCY = "One server: latency of an uncontended cycle"
THROUGHPUT = "One server: throughput, distinct names"
BASE: Final = "redis-py"
ASKED: Final = ("ours-plain", "ours-fenced", BASE, "floor")


async def ask(bench: Bench) -> None:
    peers = [peer for peer in bench.peers(lambda spec: spec.can("throughput")) if peer in ASKED]
    cases = 1 + len(bench.settings.single)
    bases = (BASE, "floor")
    async with bench.over(peers, 1) as (_, workers):
        alone = {peer: partial(latency_turn, bench, peer, worker) for peer, (worker,) in workers.items()}
        taken = await bench.turns(alone, cases=cases, warm=True)
    add_latencies(bench, LATENCY, taken, workers, bases=bases)
    for tasks in bench.settings.single:
        bench.say(f"  {tasks} tasks")
        async with bench.over(peers, 1) as (_, workers):
            many = {
                peer: partial(throughput_turn, bench, peer, worker, tasks)
                for peer, (worker,) in workers.items()
            }
            taken = await bench.turns(many, cases=cases, warm=True)
        add_throughput(bench, THROUGHPUT, taken, workers, bases=bases, tasks=tasks)
