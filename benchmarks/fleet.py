"""What a fleet of processes costs: ``python -m benchmarks.fleet``, from the root of a checkout.

Many managers, each in the place of a process, hold leases over three masters in memory, which run the Lua
scripts as servers do.  All of them share one event loop on virtual time, so that 1,000 processes fit into
one: what they send, and when, is that of real ones, and no queue forms, since computing takes no virtual
time.  CPU is that of the masters and all managers together: trust its growth, not its amount.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from aioredlock_ng import Lease, LockManager, _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng.testing import MemoryNode, SimLoop
from benchmarks.report import Report, machine

TABLE: Final = "A fleet on virtual time: held leases with the watchdog, ttl 10 s"
SIZES: Final = ((10, 1_000), (100, 10_000), (1_000, 10_000), (1_000, 100_000))
"""Processes, and the leases that they hold together."""
NODES: Final = 3
LATENCY: Final = 0.0005
"""Virtual seconds that a message takes."""
TTL: Final = 10.0
TRACED: Final = 10
"""Processes of which the memory is traced: tracing makes everything several times slower."""
NEIGHBOURS: Final = 100
"""Processes that want a name of the next one, at the end."""
SPREAD: Final = TTL / 2
"""Virtual seconds over which a process acquires its leases, one after the other."""
SETTLED: Final = 0.4 * TTL
"""Virtual seconds after which a lease that was acquired has been extended."""
PACKAGE: Final = str(Path(_scripts.__file__).parents[1])

_NAMES: Final = {
    script.digest: script.name for script in vars(_scripts).values() if isinstance(script, Script)
}


@final
@dataclass(slots=True)
class Requests:
    """Counts what masters execute, by script, and remembers nothing of it."""

    counts: Counter[str] = field(default_factory=Counter)

    def watch(self, node: MemoryNode) -> None:
        """Count what this master executes from now on."""
        execute = node.execute

        def counted(words: list[bytes], *client: Any) -> bytes:
            self.counts[_NAMES.get(words[1], "") if words[1:] else ""] += 1
            reply = execute(words, *client)
            node.executed.clear()
            return reply

        node.execute = counted  # type: ignore[method-assign]


@contextlib.contextmanager
def traced() -> Iterator[list[int]]:
    """Trace what the package allocates, the masters in memory left out; the list is given its bytes."""
    sizes: list[int] = []
    tracemalloc.start()
    try:
        yield sizes
        filters = (
            tracemalloc.Filter(inclusive=True, filename_pattern=f"{PACKAGE}/*"),
            tracemalloc.Filter(inclusive=False, filename_pattern=f"{PACKAGE}/testing/*"),
        )
        found = tracemalloc.take_snapshot().filter_traces(filters)
        sizes.append(sum(trace.size for trace in found.traces))
    finally:
        tracemalloc.stop()


def live_timers() -> int:
    """Return how many timers of the loop are to come."""
    timers = SimLoop.running()._virtual._timers  # noqa: SLF001 (no other code has to know)
    return sum(not timer.cancelled() for _, _, timer in timers)


@final
class Fleet:
    """So many processes, and the leases that each of them holds."""

    def __init__(self, processes: int, leases: int) -> None:
        self.clock = SimLoop.running().clock
        self.requests = Requests()
        self.nodes = [MemoryNode(latency=LATENCY) for _ in range(NODES)]
        for node in self.nodes:
            self.requests.watch(node)
        self.managers = [
            LockManager(
                self.nodes,
                clock=self.clock,
                random=random.Random(number),
                ttl=TTL,
                holder=f"process {number}",
            )
            for number in range(processes)
        ]
        self.each = leases // processes
        self.leases: list[Lease] = []

    async def start(self, managers: Sequence[LockManager]) -> None:
        """Connect processes to all nodes."""
        await asyncio.gather(*(manager.start() for manager in managers))

    async def acquire(self, numbers: range) -> None:
        """Have processes acquire their leases, each one after the other."""

        async def all_of(number: int) -> None:
            for lease in range(self.each):
                self.leases.append(await self.managers[number].lock(f"{number}:{lease}").acquire())
                await asyncio.sleep(SPREAD / self.each)

        await asyncio.gather(*map(all_of, numbers))

    def total(self, what: str) -> int:
        """Return what all processes have counted together."""
        return sum(getattr(manager.statistics(), what) for manager in self.managers)

    async def hand_off(self) -> list[float]:
        """Have processes wait for a name of the next one, which then releases it; return the seconds.

        They count from the release; the names of all pairs are released at the same moment.
        """

        async def wait(number: int) -> float:
            lease = await self.managers[number - 1].lock(f"{number}:0").acquire()
            took = self.clock.now() - released_at
            await lease.release()
            return took

        numbers = range(min(len(self.managers), NEIGHBOURS))
        waiting = [asyncio.create_task(wait(number)) for number in numbers]
        await asyncio.sleep(1)
        released_at = self.clock.now()
        names = {f"{number}:0" for number in numbers}
        await asyncio.gather(*(lease.release() for lease in self.leases if lease.names[0] in names))
        return await asyncio.gather(*waiting)

    async def close(self) -> None:
        """Release everything."""
        await asyncio.gather(*(manager.aclose() for manager in self.managers))


async def measure(processes: int, leases: int, seconds: float) -> dict[str, Any]:
    """Let a fleet hold its leases for so many virtual seconds; return the figures."""
    fleet = Fleet(processes, leases)
    few = range(min(TRACED, processes))
    with traced() as of_processes:
        await fleet.start(fleet.managers[: len(few)])
    with traced() as of_leases:
        await fleet.acquire(few)
    await fleet.start(fleet.managers[len(few) :])
    await fleet.acquire(range(len(few), processes))
    await asyncio.sleep(SETTLED)
    fleet.requests.counts.clear()
    gc.collect()
    gc.freeze()  # each process has a garbage collector of its own, which sees only what is its own
    extended, began = fleet.total("extended"), time.process_time()
    await asyncio.sleep(seconds)
    spent, extended = time.process_time() - began, fleet.total("extended") - extended
    counts, tasks, timers = fleet.requests.counts.copy(), len(asyncio.all_tasks()) - 1, live_timers()
    gc.unfreeze()
    left = min(lease.valid_until - fleet.clock.now() for lease in fleet.leases)
    row = {
        "processes": processes,
        "leases": fleet.total("held"),
        "bytes_per_lease": of_leases[0] / (len(few) * fleet.each),
        "bytes_per_process": of_processes[0] / len(few),
        "tasks_per_process": tasks / processes,
        "timers_per_process": timers / processes,
        "extensions_per_s": extended / seconds,
        "requests_per_node_and_s": counts.total() / NODES / seconds,
        "heartbeats_per_node_and_s": counts[_scripts.GREET.name] / NODES / seconds,
        "cpu_per_virtual_s": spent / seconds,
        "cpu_us_per_extension": spent / extended * 1e6,
        "handoff_ms": max(await fleet.hand_off()) * 1e3,
        "least_validity_s": left,
        "lost": fleet.total("lost"),
    }
    await fleet.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="virtual ones for each size (default 5)")
    parser.add_argument(
        "--sizes", nargs="+", default=[f"{one}x{all_}" for one, all_ in SIZES], metavar="PROCESSESxLEASES"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too, as JSON lines")
    given = parser.parse_args()
    logging.getLogger("aioredlock_ng").setLevel(logging.ERROR)  # it warns of many managers in one process
    report = Report(given.json)
    report.environment(machine() | {"nodes": NODES, "seconds": given.seconds, "latency_ms": LATENCY * 1e3})
    for size in given.sizes:
        processes, leases = map(int, size.split("x"))
        report.add(TABLE, **SimLoop.run(measure(processes, leases, given.seconds)))
    print(report.markdown())


if __name__ == "__main__":
    main()
