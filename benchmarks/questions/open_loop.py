"""How long do requests take that come at their own times (Poisson), whether or not those before are done?

A loop that waits for its answers before it asks again leaves out the requests that would have come meanwhile
(coordinated omission).  Here each one's time counts from when it was due.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from benchmarks.bench import Bench
from benchmarks.cycles import compared, microseconds, new_prefix, p50
from benchmarks.driver import Figures, Turn, Worker

TABLE = "Open loop, distinct names: latency from the intended start"
REQUESTS = 40
"""In one turn, at least."""


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.can("open_loop") and not spec.inside), bench.settings
    for rate in settings.rates:
        bench.say(f"  {rate:g} requests per second")
        async with bench.over(peers) as (_, workers):
            turns = {peer: requests(bench, peer, worker, rate) for peer, (worker,) in workers.items()}
            taken = await bench.turns(turns, cases=len(settings.rates), warm=True)
        for peer in workers:
            turns_ = taken[peer]
            bench.report.add(
                TABLE,
                loop=bench.loop,
                rate=rate,
                peer=peer,
                p50_us=microseconds(turns_, "times", 0.5),
                p99_us=microseconds(turns_, "times", 0.99),
                **compared(taken, peer, p50("times")),
                p99_us_from_actual_start=microseconds(turns_, "cycles", 0.99),
                started_late_p99_us=microseconds(turns_, "late", 0.99),
                turns=len(turns_.figures),
                trouble=turns_.trouble,
            )


def requests(bench: Bench, peer: str, worker: Worker, rate: float) -> Turn:
    """Return a peer's turn: all peers get the same requests at the same times."""
    seeds: Callable[[], int] = count().__next__
    seconds = max(bench.settings.slice, REQUESTS / rate)

    async def turn() -> Figures:
        limit = seconds + 2 * bench.settings.limit
        return await worker.do(
            "open_loop", limit=limit, prefix=new_prefix(peer), rate=rate, seconds=seconds, seed=seeds()
        )

    return turn
