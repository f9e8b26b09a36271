"""A guard against getting slower: ``python -m benchmarks.guard``; exits with 1 when a limit is broken.

It compares ratios, never times, to peers that take turns with us within the same run; the limits leave room
for noisy machines.  Before it fails it measures once more, for longer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

from benchmarks.bench import Bench, Settings
from benchmarks.cycles import latency_turn, p50, rate, throughput_turn
from benchmarks.driver import Figures, Taken, Turn, Worker
from benchmarks.questions.hot_name import hot_turn
from benchmarks.report import Report

TASKS: Final = 100
SECTION: Final = 0.001
LATENCY: Final = "uncontended cycle, p50"
THROUGHPUT: Final = f"{TASKS} tasks, distinct names, cycles per second"
HOT: Final = "20 tasks, one name, 1 ms section, acquisitions per second"
READ: Final[dict[str, Callable[[Figures], float]]] = {LATENCY: p50("cycles"), THROUGHPUT: rate, HOT: rate}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What `peer` may do in terms of `base`: at most so much, or at least."""

    of: str
    peer: str
    base: str
    most: float = float("inf")
    least: float = 0.0

    def judge(self, taken: Taken[str]) -> tuple[bool, str]:
        """Return whether it is kept, and a line that says so."""
        for peer in (self.peer, self.base):
            turns = taken.get(peer)
            if turns is None or not turns.figures:
                return False, f"BROKEN  {self.of}: {peer}: {turns.trouble if turns else 'cannot be had'}"
        value = taken[self.peer].to(taken.get(self.base), READ[self.of]) or 0.0
        kept = self.least <= value <= self.most
        bound = f"at most {self.most:g}" if self.least == 0 else f"at least {self.least:g}"
        told = f"{self.of}: {self.peer} is {value:.2f} of {self.base}, {bound} is allowed"
        return kept, f"{'kept  ' if kept else 'BROKEN'}  {told}"


LIMITS: Final = (
    Limit(of=LATENCY, peer="ours-plain", base="floor", most=3.5),
    Limit(of=LATENCY, peer="ours-plain", base="gather", most=0.9),
    Limit(of=LATENCY, peer="ours-fenced", base="gather", most=1.2),
    Limit(of=THROUGHPUT, peer="ours-plain", base="floor", least=0.1),
    Limit(of=THROUGHPUT, peer="ours-plain", base="gather", least=2.5),
    Limit(of=THROUGHPUT, peer="ours-fenced", base="gather", least=2),
    Limit(of=HOT, peer="ours-plain", base="asyncio.Lock", least=0.3),
    Limit(of=HOT, peer="ours-fenced", base="asyncio.Lock", least=0.25),
)


async def measure(settings: Settings) -> dict[str, Taken[str]]:
    """Let all peers take turns at each of the three."""
    bench = Bench(settings, Report(), "asyncio")
    try:
        async with bench.over(settings.peers) as (_, workers):
            turns: dict[str, Callable[[str, Worker], Turn]] = {
                LATENCY: lambda peer, worker: partial(latency_turn, bench, peer, worker),
                THROUGHPUT: lambda peer, worker: partial(throughput_turn, bench, peer, worker, TASKS),
                HOT: lambda peer, worker: partial(hot_turn, bench, peer, [worker], SECTION),
            }
            return {of: await take(bench, of, make, workers) for of, make in turns.items()}
    finally:
        await bench.close()


async def take(bench: Bench, of: str, make: Any, workers: dict[str, list[Worker]]) -> Taken[str]:
    """Let those take turns that some limit names."""
    named = {name for limit in LIMITS if limit.of == of for name in (limit.peer, limit.base)}
    turns = {peer: make(peer, worker) for peer, (worker,) in workers.items() if peer in named}
    return await bench.turns(turns, cases=len(READ), warm=of != LATENCY)


def broken(taken: dict[str, Taken[str]], limits: Sequence[Limit] = LIMITS) -> list[str]:
    """Say what is kept, and return what is not."""
    told = [limit.judge(taken[limit.of]) for limit in limits]
    print(*(line for _, line in told), sep="\n", flush=True)
    return [line for kept, line in told if not kept]


def main() -> None:
    peers = tuple(dict.fromkeys(name for limit in LIMITS for name in (limit.peer, limit.base)))
    settings = Settings(peers=peers, seconds=9, least=4, slice=0.2, hot=0.4)
    if broken(asyncio.run(measure(settings))):
        print("Once more, for longer:")
        if broken(asyncio.run(measure(replace(settings, seconds=27, least=8)))):
            sys.exit("The benchmarks' guard: slower than it may be, twice; see BROKEN above.")


if __name__ == "__main__":
    main()
