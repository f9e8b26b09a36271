"""What do the parts of the core take (`benchmarks.micro`)?"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.environments import ROOT

TABLE = "The core, without I/O"


async def ask(bench: Bench) -> None:
    if not importlib.util.find_spec("pyperf"):
        bench.say("!!! LEFT OUT: pyperf is missing; pip install --group bench")
        return
    if TABLE in bench.report.tables:
        return  # no event loop is involved: once is enough
    import pyperf

    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = ("-m", "benchmarks.micro", "--quiet", "-o", str(results), *bench.settings.micro)
        process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
        if await process.wait():
            raise RuntimeError("the micro-benchmarks failed")
        for benchmark in pyperf.BenchmarkSuite.load(str(results)).get_benchmarks():
            values = benchmark.get_values()
            bench.report.add(
                TABLE,
                part=benchmark.get_name(),
                mean_us=benchmark.mean() * 1e6,
                sd_us=benchmark.stdev() * 1e6 if len(values) > 1 else None,
                values=len(values),
            )
