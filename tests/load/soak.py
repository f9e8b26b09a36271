"""A long run under mixed load and real faults: exclusion, fences, and nothing that grows.

    python -m tests.load.soak --minutes 30 [--json FILE] [--uvloop]

One process, two managers (which stand for two processes: they share nothing but the clock) over five real
servers.  Meanwhile nodes are frozen, killed and restarted empty, a minority at a time.  Exit code 1 when two
held a name at once, a fence did not grow, something was left behind, or a series grew.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from aioredlock_ng import LockManager
from aioredlock_ng._settings.specs import MAX_PRIMITIVES
from aioredlock_ng.testing import local_nodes
from tests.load.claims import Claims
from tests.load.faults import trouble
from tests.load.samples import (
    FEWEST,
    HEADLINE,
    MIB,
    PACKAGE,
    Tolerance,
    Trend,
    descriptors,
    kept_by,
    own_objects,
    sample,
    trends,
)
from tests.load.work import QUARANTINE, TTL, WORKERS, Mill

Leak = Callable[[Mill], Coroutine[Any, Any, None]]

# For what piles up while a node is away, and goes within a ttl of its return.
AFTER_A_CUT: Final = Tolerance(share=0.25, units=2000)

# For what a frozen node has not answered, and for the releases that turns remember: both bounded.
FULL_PIPES: Final = Tolerance(share=0.25, units=2048)

# What may differ between the quarters of a run of minutes.
LONG: Final = {
    "rss": Tolerance(share=0.10, units=12 * MIB),
    "fds": Tolerance(share=0, units=4),
    "tasks": Tolerance(share=0.10, units=12),
    "kept windows": Tolerance(share=0.25, units=256),  # bounded by MAX_WINDOWS for each manager
    "kept unresolved": AFTER_A_CUT,
    "kept owed": AFTER_A_CUT,
    "kept in flight": FULL_PIPES,
    "kept deadlines": FULL_PIPES,  # of the rounds that a frozen node keeps open for a `node_timeout`
    "kept channels": FULL_PIPES,  # what a frozen node has not answered; all is answered at rest
    "object Primitive": Tolerance(share=0, units=2 * MAX_PRIMITIVES),  # a slow machine fills its caches late
    "object _Unresolved": AFTER_A_CUT,
    "object PendingRelease": AFTER_A_CUT,
    "object Command": FULL_PIPES,
    "object Round": FULL_PIPES,
    "object Tally": FULL_PIPES,
    "object HandoffWindow": Tolerance(share=0.25, units=256),
}

# For what a few seconds tell nothing of: caches are being filled, and a node may be away at their end.
NO_TELLING: Final = Tolerance(share=10.0, units=20_000)

# What may differ between the quarters of a run of seconds. The first that fits counts.
SHORT: Final = {
    "object": NO_TELLING,
    **LONG,
    **{name: NO_TELLING for name, usual in LONG.items() if usual in (AFTER_A_CUT, FULL_PIPES)},
    "rss": Tolerance(share=0, units=64 * MIB),
    "kept windows": Tolerance(share=0, units=2048),
}

USUAL: Final = Tolerance(share=0.25, units=100)

STOP_WITHIN: Final = 60.0  # seconds for the load to end: every wait in it is shorter

# Seconds until nothing must be kept any more: the ledger repeats releases for a ttl.
REST_WITHIN: Final = 4 * TTL


@dataclass(kw_only=True)
class Outcome:
    """What a run has shown."""

    seconds: float
    counts: dict[str, int]
    violations: list[str]
    left: dict[str, float]  # what was still kept when all was at rest, and what a closed manager left behind
    trends: list[Trend]
    samples: list[dict[str, float]] = field(default_factory=list)

    @property
    def growing(self) -> list[Trend]:
        """The series that grew."""
        return [one for one in self.trends if one.growing]

    @property
    def ok(self) -> bool:
        """Whether all is as it should be."""
        return not (self.violations or self.left or self.growing)


async def soak(
    seconds: float,
    *,
    every: float,
    tolerances: dict[str, Tolerance],
    leak: Leak | None = None,
    seed: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the load for so long, and judge it.

    Args:
        seconds: how long the load runs; longer if it takes longer to have samples enough.
        every: seconds between two samples.
        tolerances: of the series.
        leak: something that is called with each sample: to see that the judge finds it.
        seed: of the load's choices.
        tell: is given a line now and then.
    """
    gc.collect()
    before = asyncio.all_tasks(), own_objects(), descriptors()
    claims, samples = Claims(), []
    began = time.monotonic()
    async with _mill(claims, Random(seed)) as mill:
        async with _running(mill):
            while time.monotonic() - began < seconds or len(samples) < FEWEST:
                await asyncio.sleep(every)
                samples.append(sample(mill.managers))
                if leak is not None:
                    await leak(mill)
                tell(f"{time.monotonic() - began:7.0f} s  {claims.counts['grants']:9,} grants  {samples[-1]}")
        left = {} if leak else await _at_rest(mill.managers)
    claims.violations += mill.stray
    del mill
    left |= {} if leak else _left_behind(*before)
    return Outcome(
        seconds=time.monotonic() - began,
        counts=dict(claims.counts),
        violations=claims.violations,
        left=left,
        trends=trends(samples, tolerances, USUAL),
        samples=samples,
    )


@asynccontextmanager
async def _mill(claims: Claims, random: Random) -> AsyncIterator[Mill]:
    async with local_nodes(5) as nodes, AsyncExitStack() as stack:
        managers = [
            await stack.enter_async_context(
                LockManager(nodes.urls, ttl=TTL, restart_quarantine=QUARANTINE, holder=f"process {i}")
            )
            for i in range(2)
        ]
        yield Mill(nodes=nodes, managers=managers, claims=claims, random=random)


@asynccontextmanager
async def _running(mill: Mill) -> AsyncIterator[None]:
    """Let the workers work, and end them all."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: mill.stray.append(repr(context)))
    tasks = [loop.create_task(mill.work(worker)) for worker in WORKERS for _ in range(worker.tasks)]
    troubles = loop.create_task(trouble(mill.nodes, mill.random, mill.claims.counts))
    try:
        yield
    finally:
        mill.over = True
        for kept in mill.kept:
            end = getattr(kept, "cancel", None) or getattr(kept, "close", None)
            if end is not None:
                end()
        troubles.cancel()
        await asyncio.wait((troubles,))
        _, late = await asyncio.wait(tasks, timeout=STOP_WITHIN)
        for task in late:
            mill.stray.append(f"does not end: {task!r}")
            task.cancel()
        loop.set_exception_handler(handler)
        mill.stray += [repr(task.exception()) for task in tasks if task not in late and task.exception()]


async def _at_rest(managers: Sequence[LockManager]) -> dict[str, float]:
    """Return what unused managers still keep after a while."""
    deadline = time.monotonic() + REST_WITHIN
    while True:
        held: dict[str, float] = {}
        for manager in managers:
            assert manager._life.session is not None
            held |= {
                name: count
                for name, count in kept_by(manager._life.session).items()
                if count
                and name not in ("kept windows", "kept eternal", "kept releases")
                and not (name == "kept watchdog heap" and count <= 64)  # entries of the ended, bounded
                and not (name == "kept in flight" and count <= len(manager._life.session.nodes))  # heartbeats
            }
        if not held or time.monotonic() > deadline:
            return held
        await asyncio.sleep(0.05)


def _left_behind(idle: set[asyncio.Task[Any]], objects: Any, fds: int) -> dict[str, float]:
    """Return the tasks, holdings and descriptors that outlived their managers."""
    gc.collect()
    now = own_objects()
    kinds = (
        "object Session",
        "object Holding",
        "object Attempt",
        "object Lease",
        "object NameEntry",
        "object Link",
    )
    left = {kind: now[kind] - objects[kind] for kind in kinds if now[kind] > objects[kind]}
    left |= {"tasks": len(tasks)} if (tasks := asyncio.all_tasks() - idle) else {}
    return left | ({"fds": more} if (more := descriptors() - fds) > 0 else {})


def report(outcome: Outcome) -> str:
    """Return a table of what was seen."""
    figures = ", ".join(f"{count:,} {name}" for name, count in sorted(outcome.counts.items()))
    lines = [f"{outcome.seconds:.0f} s: {figures}", HEADLINE, *map(str, outcome.trends)]
    lines += [f"VIOLATION {violation}" for violation in outcome.violations[:20]]
    lines += [f"LEFT {name}: {count:g}" for name, count in outcome.left.items()]
    return "\n".join([*lines, "ok" if outcome.ok else "NOT OK"])


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, metavar="S", help="seconds between two samples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome and all samples there")
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # nodes go down and leases are lost all the time
    seconds = arguments.minutes * 60
    every = arguments.every or max(seconds / 200, 1.0)
    running = soak(
        seconds,
        every=min(every, seconds / FEWEST),
        tolerances=LONG if seconds >= 240 else SHORT,
        seed=arguments.seed,
    )
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        outcome = runner.run(running)
    print(report(outcome))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(outcome), indent=1))
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
