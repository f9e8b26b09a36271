"""A guard against getting slower: ``python -m benchmarks.guard``; exits with 1 when a limit is broken.

It compares ratios, never times, to peers that take turns with us within the same run, and counts commands;
the limits leave room for noisy machines.  Before it fails it measures once more, for longer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, final

from benchmarks.bench import Bench, Settings
from benchmarks.cycles import IN_TURN, ONCE, latency_turn, median, p50, rate, throughput_turn
from benchmarks.driver import Figures, Taken, Turn, Worker
from benchmarks.questions.hot_name import counted, hot_turn
from benchmarks.report import Report

Make: TypeAlias = Callable[[str, Worker], Turn]
"""Makes the turns of a peer and its worker."""

TASKS: Final = 100
SECTION: Final = 0.001
LATENCY: Final = "uncontended cycle, names used once, p50"
KNOWN_LATENCY: Final = "uncontended cycle, names in turn, p50"
THROUGHPUT: Final = f"{TASKS} tasks, names used once, cycles per second"
KNOWN_THROUGHPUT: Final = f"{TASKS} tasks, names in turn, cycles per second"
HOT: Final = "20 tasks, one name, 1 ms section, acquisitions per second"
COMMANDS: Final = "20 tasks, one name, 1 ms section, commands per acquisition to all nodes"
READ: Final[dict[str, Callable[[Figures], float]]] = {
    LATENCY: p50("cycles"),
    KNOWN_LATENCY: p50("cycles"),
    THROUGHPUT: rate,
    KNOWN_THROUGHPUT: rate,
    HOT: rate,
    COMMANDS: lambda figures: float(figures["commands"]),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What `peer` may do in terms of `base`, or by itself if there is none: at most so much, or at least."""

    of: str
    peer: str
    base: str | None = None
    most: float = float("inf")
    least: float = 0.0

    @property
    def peers(self) -> tuple[str, ...]:
        """Return which peers it needs."""
        return (self.peer,) if self.base is None else (self.peer, self.base)

    def judge(self, taken: Taken[str]) -> tuple[bool, str]:
        """Return whether it is kept, and a line that says so."""
        for peer in self.peers:
            turns = taken.get(peer)
            if turns is None or not turns.figures:
                return False, f"BROKEN  {self.of}: {peer}: {turns.trouble if turns else 'cannot be had'}"
        mine, read = taken[self.peer], READ[self.of]
        found = median(mine, read) if self.base is None else mine.to(taken.get(self.base), read)
        value, unit = found or 0.0, "" if self.base is None else f" of {self.base}"
        kept = self.least <= value <= self.most
        bound = f"at most {self.most:g}" if self.least == 0 else f"at least {self.least:g}"
        told = f"{self.of}: {self.peer} is {value:.2f}{unit}, {bound} is allowed"
        return kept, f"{'kept  ' if kept else 'BROKEN'}  {told}"


LIMITS: Final = (
    Limit(of=LATENCY, peer="ours-plain", base="floor", most=2.2),
    Limit(of=LATENCY, peer="ours-plain", base="gather", most=0.75),
    Limit(of=LATENCY, peer="ours-fenced", base="gather", most=0.95),
    Limit(of=KNOWN_LATENCY, peer="ours-plain", base="floor", most=2.2),
    Limit(of=KNOWN_LATENCY, peer="ours-plain", base="gather", most=0.75),
    Limit(of=KNOWN_LATENCY, peer="ours-fenced", base="gather", most=0.95),
    Limit(of=THROUGHPUT, peer="ours-plain", base="floor", least=0.35),
    Limit(of=THROUGHPUT, peer="ours-plain", base="gather", least=9),
    Limit(of=THROUGHPUT, peer="ours-fenced", base="gather", least=7),
    Limit(of=KNOWN_THROUGHPUT, peer="ours-plain", base="floor", least=0.4),
    Limit(of=KNOWN_THROUGHPUT, peer="ours-plain", base="gather", least=10),
    Limit(of=KNOWN_THROUGHPUT, peer="ours-fenced", base="gather", least=8),
    Limit(of=HOT, peer="ours-plain", base="asyncio.Lock", least=0.65),
    Limit(of=HOT, peer="ours-fenced", base="asyncio.Lock", least=0.65),
    Limit(of=COMMANDS, peer="ours-plain", most=2),
    Limit(of=COMMANDS, peer="ours-fenced", most=2),
)


async def measure(settings: Settings) -> dict[str, Taken[str]]:
    """Let all peers take turns at each of them."""
    bench = Bench(settings, Report(), "asyncio")
    try:
        async with bench.over(settings.peers) as (nodes, workers):

            def latency(names: str) -> Make:
                return lambda peer, worker: partial(latency_turn, bench, peer, worker, names)

            def throughput(names: str) -> Make:
                return lambda peer, worker: partial(throughput_turn, bench, peer, worker, TASKS, names)

            def hot(peer: str, worker: Worker) -> Turn:
                return partial(hot_turn, bench, peer, [worker], SECTION)

            turns: dict[str, Make] = {
                LATENCY: latency(ONCE),
                KNOWN_LATENCY: latency(IN_TURN),
                THROUGHPUT: throughput(ONCE),
                KNOWN_THROUGHPUT: throughput(IN_TURN),
                HOT: hot,
                COMMANDS: lambda peer, worker: partial(counted, hot(peer, worker), nodes.urls),
            }
            return {of: await take(bench, of, make, workers) for of, make in turns.items()}
    finally:
        await bench.close()


async def take(bench: Bench, of: str, make: Make, workers: dict[str, list[Worker]]) -> Taken[str]:
    """Let those take turns that some limit names."""
    named = {name for limit in LIMITS if limit.of == of for name in limit.peers}
    turns = {peer: make(peer, worker) for peer, (worker,) in workers.items() if peer in named}
    return await bench.turns(turns, cases=len(READ), warm=of not in (LATENCY, KNOWN_LATENCY))


def broken(taken: dict[str, Taken[str]], limits: Sequence[Limit] = LIMITS) -> list[str]:
    """Say what is kept, and return what is not."""
    told = [limit.judge(taken[limit.of]) for limit in limits]
    print(*(line for _, line in told), sep="\n", flush=True)
    return [line for kept, line in told if not kept]


def main() -> None:
    peers = tuple(dict.fromkeys(name for limit in LIMITS for name in limit.peers))
    settings = Settings(peers=peers, seconds=9, least=4, slice=0.2, hot=0.4)
    if broken(asyncio.run(measure(settings))):
        print("Once more, for longer:")
        if broken(asyncio.run(measure(replace(settings, seconds=27, least=8)))):
            sys.exit("The benchmarks' guard: slower than it may be, twice; see BROKEN above.")


if __name__ == "__main__":
    main()
