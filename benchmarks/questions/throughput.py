"""How many cycles per second, when tasks of one process lock names of their own?

Names are used once; of one number of tasks, in turn as well.
"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.cycles import IN_TURN, ONCE, add_throughput, throughput_turn

TABLE = "Distinct names: throughput"


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.can("throughput") and not spec.inside), bench.settings
    cases = [(ONCE, tasks) for tasks in settings.tasks] + [(IN_TURN, settings.crowd)]
    for names, tasks in cases:
        bench.say(f"  {tasks} tasks, names {names}")
        async with bench.over(peers) as (_, workers):
            turns = {
                peer: partial(throughput_turn, bench, peer, worker, tasks, names)
                for peer, (worker,) in workers.items()
            }
            taken = await bench.turns(turns, cases=len(cases), warm=True)
        add_throughput(bench, TABLE, taken, workers, names=names, tasks=tasks)
