"""What a process gets of a lock that other libraries' processes want, too: ``python -m benchmarks.sharing``.

One process of this package beside one or three of another library on the same key, which is held 5 ms at a
time.  The others poll, and publish no release.  A fair share is what each would get if all got the same;
an increment of a number in a file, read at the beginning of a section and written at its end, is lost if two
are ever inside at once.  All processes begin at the same moment, and the first seconds do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from aioredlock_ng.testing import local_nodes
from benchmarks.driver import START_TIMEOUT, Figures, TroubleError, Worker
from benchmarks.environments import UnavailableError, command_of
from benchmarks.report import Report, environment

OURS: Final = "ours-fenced"
LOOP: Final = "asyncio"
NAME: Final = "shared"
KEY: Final = f"redlock:{NAME}"
"""What `NAME` is under this package's default prefix, and under pottery's."""

SECTION: Final = 0.005
PAUSE: Final = 0.002
COLD: Final = 0.2
"""Seconds until all processes have got the order to begin."""

WARM: Final = 1.0
"""Seconds of a first turn that does not count: connections are made."""

TABLE: Final = "One process of ours beside others"
BESIDE: Final = (1, 3)
"""Processes of the other library."""


Ask: TypeAlias = Callable[[Figures], Awaitable[list[Figures]]]
"""Gives an order to all that want a key, and returns the figures of each."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another library: what it calls the key, how many nodes it uses, and how it polls."""

    name: str = KEY
    nodes: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)


RIVALS: Final[Mapping[str, Rival]] = {
    "redis-py": Rival(nodes=1, options={"sleep": 0.01}),
    "pottery": Rival(name=NAME, options={"retry_delay": 0.02}),
    "aioredlock": Rival(options={"retry_delay_min": 0.001, "retry_delay_max": 0.02}),
    "node-redlock": Rival(),
}


async def contest(ask: Ask, *, seconds: float, cold: float = COLD, **more: Any) -> list[Figures]:
    """Let all that `ask` gives the order to want one key from the same moment on; return what each did.

    Raises:
        TroubleError: one failed, or an increment was lost.
    """
    with tempfile.TemporaryDirectory() as folder:
        counter = Path(folder) / "counter"
        counter.write_text(f"{0:09}")
        order: Figures = {"at": time.monotonic() + cold, "seconds": seconds, "counter": str(counter)}
        parts = await ask(order | {"section": SECTION, "pause": PAUSE} | more)
        done, counted = sum(part["done"] for part in parts), int(counter.read_text())
    if counted != done:
        raise TroubleError(f"{done} increments, of which {done - counted} were lost")
    return parts


async def turn(workers: Sequence[Worker], names: Sequence[str], seconds: float) -> list[int]:
    """Let all want the key at once; return how often each had it, as `contest` does."""

    async def share(order: Figures) -> list[Figures]:
        pairs, limit = zip(workers, names, strict=True), seconds + START_TIMEOUT
        asked = (worker.do("share", limit=limit, name=name, **order) for worker, name in pairs)
        return await asyncio.gather(*asked)

    return [part["had"] for part in await contest(share, seconds=seconds)]


async def shares(report: Report, peer: str, beside: int, seconds: float) -> None:
    """Add the row of one of ours beside so many of another library."""
    rival = RIVALS[peer]
    workers: list[Worker] = []
    try:
        async with local_nodes(rival.nodes) as nodes:
            if not report.environments:
                report.environment(environment(nodes.urls, seconds=seconds, section=SECTION))
            workers.append(Worker(*await command_of(OURS, LOOP)))
            await workers[0].open(OURS, nodes.urls)
            for _ in range(beside):
                workers.append(Worker(*await command_of(peer, LOOP)))
                await workers[-1].open(peer, nodes.urls, **rival.options)
            names = [NAME, *[rival.name] * beside]
            await turn(workers, names, WARM)
            before = os.getloadavg()[0]
            had = await turn(workers, names, seconds)
            for worker in workers:
                await worker.close(START_TIMEOUT)
    finally:
        for worker in workers:
            await worker.end()
    fair = sum(had) / len(had)
    report.add(
        TABLE,
        peer=peer,
        processes=beside,
        per_s=sum(had) / seconds,
        ours=had[0],
        others=" ".join(map(str, had[1:])),
        ours_to_fair=had[0] / fair,
        least_other_to_fair=min(had[1:]) / fair,
        load_before=before,
    )


async def run(given: argparse.Namespace) -> Report:
    """Ask about all libraries that were asked for; those that cannot be had are left out, loudly."""
    report = Report()
    for peer in given.peers:
        for beside in BESIDE:
            print(f"{peer}, {beside} of them", file=sys.stderr, flush=True)
            try:
                await shares(report, peer, beside, given.seconds)
            except (UnavailableError, TroubleError) as error:
                print(f"!!! {peer.upper()} IS LEFT OUT: {error}", file=sys.stderr)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sharing", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--peers", nargs="+", choices=RIVALS, default=list(RIVALS), metavar="PEER")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a turn (default 15)")
    print(asyncio.run(run(parser.parse_args())).markdown())


if __name__ == "__main__":
    main()
