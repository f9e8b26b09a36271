"""What of the package does one uncontended acquire go through (`benchmarks.path`)?"""

from __future__ import annotations

from aioredlock_ng.testing import local_nodes
from benchmarks import path
from benchmarks.bench import NODES, Bench


async def ask(bench: Bench) -> None:
    if path.TABLE in bench.report.tables:
        return  # the figures are the same with every event loop
    async with local_nodes(NODES, server=bench.settings.server) as nodes:
        await path.ask(bench.report, nodes.urls)
