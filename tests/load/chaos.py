"""An hour of chaos: four processes and two other libraries, locks of all kinds, over five real servers.

    python -m tests.load.chaos --minutes 60 --json chaos.json [--plot FOLDER]
    python -m tests.load.chaos --load chaos.json --plot FOLDER    # the tables and plots of a finished run

Every client reaches each server through a proxy of its own.  Meanwhile servers are frozen, restarted with and
without their data, flushed and cut off, connections are delayed, cut and forgotten, and processes are frozen:
all of it within the assumptions under which exclusion is promised (A1 to A5).  Exit code 1 when two held a
lock at once, a fence did not grow, an error was not a documented one, a key was left or a series grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO, Any, Final

from redis import RedisError

from aioredlock_ng.testing import LocalNodes, ServerStartError, local_nodes
from benchmarks.environments import python_of
from benchmarks.report import environment
from tests.faults.chaos_proxy import ChaosProxy, proxied
from tests.faults.losses import kept
from tests.load.chaos_guest import now
from tests.load.chaos_report import draw, judge, markdown
from tests.load.chaos_worker import QUARANTINE, SHARED, TTL
from tests.load.growth import resident
from tests.servers import ask, eventually, kill_connections, lock_keys

PROCESSES: Final = 4
GUESTS: Final = ("pottery", "redlock-ng")
NODES: Final = 5
MAJORITY: Final = 3
STOP_WITHIN: Final = 60.0  # seconds for the load to end: every wait in it is shorter
PATIENCE: Final = 6  # times that a server may take longer to start than it is given
# Data that a killed process had written is in its file; only a machine that stops loses the last second.
PERSISTENT: Final = {"appendonly": "yes", "appendfsync": "everysec"}
HERE: Final = Path(__file__).parent

# Seconds after which a restarted server votes again, whichever client looks.
HEAL: Final = QUARANTINE * 1.01 + 1.0
LEFT: Final = 2 * TTL  # seconds after which no key is left, those of the other libraries included


class Chaos:
    """The faults: those of servers, of each client's connections, and of the processes."""

    def __init__(self, nodes: LocalNodes, record: IO[str]) -> None:
        self.nodes = nodes
        self.proxies: list[list[ChaosProxy]] = []  # of each client, in front of each server
        self.processes: list[asyncio.subprocess.Process] = []
        self._record = record
        self._barred: set[int] = set()  # servers that the other libraries must not use yet

    @contextlib.asynccontextmanager
    async def fault(self, what: str) -> AsyncIterator[None]:
        """Record the block as a fault."""
        began = now()
        yield
        self.note("fault", what, began, now())

    def note(self, what: str, *facts: object) -> None:
        """Append a line to the record."""
        self._record.write(json.dumps([what, "proxies", *facts]) + "\n")
        self._record.flush()

    async def servers(self) -> None:
        """Strike one server or two, and now and then a majority."""
        many = {"freeze": (1, 2), "freeze a majority": (MAJORITY,)}
        kinds = (*STRIKES, *many, "freeze")
        while True:
            for what in random.sample(kinds, len(kinds)):
                await asyncio.sleep(random.uniform(1.0, 6.0))
                which = random.sample(range(NODES), random.choice(many.get(what, (1, 2))))
                # On a machine with much other work a server may be too slow to be struck.
                async with self.fault(f"server: {what}"):
                    with contextlib.suppress(RedisError, TimeoutError):
                        await self._strike(what, which)
                if self._barred:
                    await asyncio.sleep(HEAL)
                    await self._unbar()

    async def _strike(self, what: str, which: list[int]) -> None:
        if what not in STRIKES:
            await self._freeze(which)
        for i in which if what in STRIKES else ():
            await STRIKES[what](self, i)

    async def _freeze(self, which: list[int]) -> None:
        try:
            for i in which:
                self.nodes.pause(i)
            await asyncio.sleep(random.uniform(0.1, 5.0))
        finally:
            for i in which:
                self.nodes.resume(i)

    async def restart(self, i: int, *, empty: bool = False) -> None:
        """Kill a server and start it again, with its data or without."""
        self._bar(i)
        place = kept(self.nodes, i)
        self.nodes.kill(i)
        if empty:
            shutil.rmtree(place)
        await asyncio.sleep(random.uniform(0.0, 2.0))
        for _ in range(PATIENCE):
            with contextlib.suppress(ServerStartError):
                await self.nodes.restart(i)
                break

    async def flush(self, i: int) -> None:
        """Let a server that goes on forget all."""
        self._bar(i)
        await asyncio.to_thread(ask, self.nodes.urls[i], "FLUSHALL")

    async def disconnect(self, i: int) -> None:
        """Let a server end all connections."""
        await asyncio.to_thread(kill_connections, self.nodes.urls[i])

    async def forget_scripts(self, i: int) -> None:
        """Let a server forget the scripts that it was sent."""
        await asyncio.to_thread(ask, self.nodes.urls[i], "SCRIPT FLUSH")

    def _bar(self, i: int) -> None:
        # Other libraries know of no quarantine.  For them it is what the Redlock page calls a delayed
        # restart: a server that may have forgotten locks is out of reach for as long.
        self._barred.add(i)
        for proxies in self.proxies[PROCESSES:]:
            proxies[i].refuse()
            proxies[i].reset()

    async def _unbar(self) -> None:
        barred, self._barred = self._barred, set()
        for proxies in self.proxies[PROCESSES:]:
            for i in barred:
                await proxies[i].open()

    async def network(self, clients: list[int]) -> None:
        """Strike the connections of one client after the other to some servers."""
        ways: dict[str, Callable[[ChaosProxy], object]] = {
            "delay": _slow(delay=0.1),
            "jitter": _slow(jitter=0.3),
            "small pieces": _slow(piece=lambda: random.randrange(1, 400)),
            "requests stall": lambda proxy: proxy.requests.stall(),
            "replies stall": lambda proxy: proxy.replies.stall(),
            "both stall": ChaosProxy.stall,
            "half-open": ChaosProxy.half_open,
            "reset": ChaosProxy.reset,
            "reset in mid-reply": lambda proxy: proxy.replies.reset_after(random.randrange(200)),
            "refuse": ChaosProxy.refuse,
            "reject": _reject,
        }
        while True:
            for what in random.sample(list(ways), len(ways)):
                await asyncio.sleep(random.uniform(0.5, 4.0))
                which = random.sample(range(NODES), random.choice((1, 2, 2, 3)))
                client = random.choice(clients)
                async with self.fault(f"network: {what}"):
                    for proxy in (proxies := [self.proxies[client][i] for i in which]):
                        ways[what](proxy)
                        if what in ("refuse", "reject"):  # else no one would connect
                            proxy.reset()
                    await asyncio.sleep(random.uniform(0.2, 5.0))
                    for i, proxy in zip(which, proxies, strict=True):
                        await self._heal(proxy, barred=client >= PROCESSES and i in self._barred)

    async def _heal(self, proxy: ChaosProxy, *, barred: bool) -> None:
        for way in proxy.ways:
            way.delay, way.jitter, way.piece = 0.0, 0.0, None
        proxy.flow()
        proxy.rejects = False
        if not barred:
            await proxy.open()

    async def pauses(self) -> None:
        """Freeze one of our processes, sometimes for longer than the ttl: its leases end meanwhile (A3)."""
        while True:
            await asyncio.sleep(random.uniform(15.0, 45.0))
            process = random.choice(self.processes[:PROCESSES])
            async with self.fault("process: freeze"):
                process.send_signal(signal.SIGSTOP)
                try:
                    await asyncio.sleep(random.uniform(0.2, 6.0))
                finally:
                    process.send_signal(signal.SIGCONT)

    async def all_heal(self) -> None:
        """End all faults of servers and connections."""
        for i in range(NODES):
            self.nodes.resume(i)
        self.nodes.start()
        for proxy in (proxy for proxies in self.proxies for proxy in proxies):
            await self._heal(proxy, barred=False)


# What is done to one server after the other.
STRIKES: Final[dict[str, Callable[[Chaos, int], Awaitable[None]]]] = {
    "restart with data": Chaos.restart,
    "restart without data": functools.partial(Chaos.restart, empty=True),
    "flush": Chaos.flush,
    "disconnect": Chaos.disconnect,
    "forget scripts": Chaos.forget_scripts,
}


def _slow(**how: Any) -> Callable[[ChaosProxy], None]:
    def act(proxy: ChaosProxy) -> None:
        for way in proxy.ways:
            for name, value in how.items():
                setattr(way, name, value)

    return act


def _reject(proxy: ChaosProxy) -> None:
    proxy.rejects = True


async def run(seconds: float, record: Path) -> None:
    """Let all of it run for so long, and write the record."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(local_nodes(NODES, options=PERSISTENT))
        file = stack.enter_context(record.open("a"))
        chaos = Chaos(nodes, file)
        chaos.note("environment", environment(nodes.urls, processes=PROCESSES, other_libraries=GUESTS))
        for client in [*range(PROCESSES), *GUESTS]:
            proxies = await stack.enter_async_context(proxied(nodes.urls))
            chaos.proxies.append(proxies)
            process = await _start(stack, client, [proxy.url for proxy in proxies], record)
            chaos.processes.append(process)
        await eventually(lambda: record.read_text().count('["sample"') >= PROCESSES, what="all take locks")
        halves = [list(range(len(chaos.proxies)))[i::2] for i in range(2)]
        loops = [chaos.servers(), *(chaos.network(clients) for clients in halves), chaos.pauses()]
        troubles = [asyncio.create_task(loop) for loop in (*loops, _watch(chaos))]
        await asyncio.wait(troubles, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in troubles:
            task.cancel()
        for end in await asyncio.gather(*troubles, return_exceptions=True):
            if not isinstance(end, asyncio.CancelledError):
                chaos.note("stray", f"the chaos ended: {end!r}")
        await asyncio.sleep(HEAL)
        await chaos.all_heal()
        await asyncio.sleep(HEAL)
        for process in chaos.processes:
            assert process.stdin is not None
            process.stdin.close()
        ended = (process.wait() for process in chaos.processes)
        codes = await asyncio.wait_for(asyncio.gather(*ended), 2 * STOP_WITHIN)
        if any(codes):
            chaos.note("stray", f"exit codes {codes}")
        await asyncio.sleep(LEFT)
        if left := [lock_keys(url) for url in nodes.urls if lock_keys(url)]:
            chaos.note("stray", f"keys are left: {left}")


async def _watch(chaos: Chaos) -> None:
    """Write down what the proxies' process uses, and see that all others live."""
    while True:
        await asyncio.sleep(10.0)
        connections = sum(proxy.connections for proxies in chaos.proxies for proxy in proxies)
        chaos.note(
            "sample", now(), {"rss": resident(), "connections": connections, "load": os.getloadavg()[0]}, {}
        )
        if any(process.returncode is not None for process in chaos.processes):
            raise RuntimeError("a process has ended; what it said is beside the record")


async def _start(
    stack: contextlib.AsyncExitStack, client: int | str, urls: list[str], record: Path
) -> asyncio.subprocess.Process:
    """Start one of our processes, or another library's in its own environment; it ends with the stack."""
    orders: dict[str, Any] = {"urls": urls, "record": str(record)}
    if isinstance(client, int):
        orders["number"] = client
        command = [sys.executable, "-m", "tests.load.chaos_worker"]
    else:
        orders["names"] = SHARED
        command = [str(await python_of(client)), str(HERE / "chaos_guest.py"), client]
    errors = stack.enter_context(record.with_suffix(".errors").open("a"))
    process = await asyncio.create_subprocess_exec(
        *command, json.dumps(orders), stdin=asyncio.subprocess.PIPE, stderr=errors
    )
    stack.callback(lambda: process.kill() if process.returncode is None else None)
    return process


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--load", type=Path, help="take the result of a finished run from this file")
    parser.add_argument("--plot", type=Path, help="draw SVG plots into this folder")
    parser.add_argument("--record", type=Path, help="keep the record of all claims in this file")
    arguments = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients of the proxies go away all the time
    if arguments.load:
        result = json.loads(arguments.load.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            record = arguments.record or Path(folder) / "record"
            record.touch()
            asyncio.run(run(arguments.minutes * 60, record))
            result = judge(record)
    if arguments.json:
        arguments.json.write_text(json.dumps(result))
    if arguments.plot:
        draw(result, arguments.plot)
    print(markdown(result), "ok" if result["ok"] else "NOT OK", sep="\n")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
