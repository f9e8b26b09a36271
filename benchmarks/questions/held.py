"""What do held leases cost that the watchdog extends: CPU, tasks, memory?  Does that grow linearly?"""

from __future__ import annotations

import time

from benchmarks.bench import Bench
from benchmarks.driver import TroubleError, Worker
from benchmarks.report import Row
from benchmarks.servers import cpu_of

TABLE = "Held leases with the watchdog, ttl 10 s"
SLOWEST = 100
"""Leases per second that every peer can acquire, and release."""


async def ask(bench: Bench) -> None:
    peers, settings = bench.peers(lambda spec: spec.holds), bench.settings
    for count in settings.held:
        bench.say(f"  {count} leases")
        async with bench.over(peers) as (nodes, workers):
            for peer, (worker,) in workers.items():
                try:
                    await add_held(bench, peer, worker, count, nodes.urls)
                except TroubleError as trouble:
                    bench.report.add(TABLE, loop=bench.loop, leases=count, peer=peer, trouble=str(trouble))


async def add_held(bench: Bench, peer: str, worker: Worker, count: int, urls: list[str]) -> None:
    """Measure one peer with so many leases, and add a row."""
    window = bench.settings.window
    limit = window + bench.settings.limit + 2 * count / SLOWEST
    servers, began = cpu_of(urls), time.monotonic()
    figures = await worker.do("held", limit=limit, prefix=peer, count=count, seconds=window)
    servers, elapsed = cpu_of(urls) - servers, time.monotonic() - began
    kept: Row = {"bytes": None}
    if count:
        order = {"prefix": f"{peer}:kept", "count": count, "seconds": window}
        kept = await worker.do("memory", limit=limit, **order)
    bench.report.add(
        TABLE,
        loop=bench.loop,
        leases=count,
        peer=peer,
        cpu_share_of_a_core=figures["cpu"],
        cpu_us_per_lease_and_s=figures["cpu"] / count * 1e6 if count else None,
        tasks=figures["tasks"],
        bytes_per_lease=kept["bytes"],
        acquired_in_s=figures["acquired_in"],
        servers_cpu_share=servers / elapsed,
        trouble=None,
    )
