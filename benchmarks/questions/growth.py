"""What does a cycle cost when 1,000 or 10,000 tasks are in flight, in terms of what it costs with 100?"""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.bench import Bench
from benchmarks.cycles import cpu, median, rate, throughput_turn

TABLE = "Growth: client CPU per cycle by number of tasks, distinct names"
ASKED: Final = ("ours-plain", "ours-fenced", "floor")
EACH: Final = 4
"""Cycles that each task does, at least: the first ones are asked for in one turn of the loop."""


async def ask(bench: Bench) -> None:
    numbers = bench.settings.growth
    peers = [peer for peer in bench.peers(lambda spec: spec.can("throughput")) if peer in ASKED]
    async with bench.over(peers) as (_, workers):
        turns = {
            (peer, tasks): partial(throughput_turn, bench, peer, worker, tasks, least=EACH)
            for peer, (worker,) in workers.items()
            for tasks in numbers
        }
        taken = await bench.turns(turns, cases=1, warm=True)
    for peer, tasks in turns:
        turns_ = taken[peer, tasks]
        bench.report.add(
            TABLE,
            loop=bench.loop,
            peer=peer,
            tasks=tasks,
            cpu_us_per_cycle=median(turns_, cpu),
            **{f"cpu_to_{numbers[0]}_tasks": turns_.to(taken.get((peer, numbers[0])), cpu)},
            cycles_per_s=median(turns_, rate),
            turns=len(turns_.figures),
            trouble=turns_.trouble,
        )
