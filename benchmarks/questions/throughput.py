"""How many cycles per second, when tasks of one process lock names of their own?"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.cycles import add_throughput, throughput_turn

TABLE = "Distinct names: throughput"


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.tasks and not spec.inside), bench.settings
    for tasks in settings.tasks:
        bench.say(f"  {tasks} tasks")
        async with bench.over(peers) as (_, workers):
            turns = {
                peer: partial(throughput_turn, bench, peer, worker, tasks)
                for peer, (worker,) in workers.items()
            }
            taken = await bench.turns(turns, cases=len(settings.tasks), warm=True)
        add_throughput(bench, TABLE, taken, workers, tasks=tasks)
