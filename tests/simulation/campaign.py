"""Many runs: each twice, each judged; the figures of all, and what failed in its smallest form."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.simulation.checks import check
from tests.simulation.checks_words import Rule, Violation
from tests.simulation.plan import Plan, draw
from tests.simulation.world import Run, run

NEEDS_TIME: Final = frozenset(
    {Rule.EXCLUSION, Rule.PERMITS, Rule.SUCCESSION, Rule.MEANWHILE, Rule.LOST_UPDATE, Rule.STEADY}
)
"""The rules that hold while clocks keep time (A1); the others hold always."""

BATCH: Final = 50
"""Seeds that a process is given at a time."""

DETERMINISM: Final = "determinism"
"""The rule that is broken when a seed does not decide everything."""

KEPT: Final = 20
"""Failures that are kept; the others are counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke a rule."""

    seed: int
    rule: str
    text: str


@dataclass(slots=True)
class Figures:
    """The results of a campaign."""

    runs: int = 0
    repeated: int = 0
    """Runs that went exactly the same way a second time."""
    timed: int = 0
    """Runs in which exclusion was checked."""
    counts: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    """Runs in which a rule was broken."""
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        """Take in those of another part of the campaign."""
        self.runs += other.runs
        self.repeated += other.repeated
        self.timed += other.timed
        self.counts += other.counts
        self.failed += other.failed
        self.failures = (self.failures + other.failures)[:KEPT]

    @property
    def acquisitions(self) -> int:
        """The number of acquisitions."""
        return self.counts["acquire ok"] + self.counts["try ok"]

    def __str__(self) -> str:
        rate = f"{self.runs / self.seconds:.1f} schedules/s" if self.seconds else ""
        lines = [
            f"{self.runs:10,} schedules; {rate}, {self.seconds:.0f} s",
            f"{self.timed:10,} of them with clocks that keep time, and exclusion checked",
            f"{self.repeated:10,} of them run a second time",
            f"{self.acquisitions:10,} acquisitions",
            f"{sum(n for what, n in self.counts.items() if what.startswith('fault ')):10,} faults injected",
        ]
        lines += [f"{number:10,}   {what}" for what, number in sorted(self.counts.items())]
        lines += [f"seed {one.seed}: {one.rule}: {one.text}" for one in self.failures]
        return "\n".join([*lines, f"{self.failed:10,} schedules with violations"])


def judged(result: Run) -> list[Violation]:
    """Return what a run broke of the rules that hold for it."""
    rules = frozenset(Rule) if result.plan.timed else frozenset(Rule) - NEEDS_TIME
    if not (result.plan.undisturbed and result.plan.in_order):
        rules -= {Rule.TURNS}
    return check(result.history, rules=rules, bound=result.plan.bound)


def examine(plan: Plan, *, twice: bool = True) -> tuple[Run, list[Failure]]:
    """Run a plan and judge it; the second time it must go exactly as the first time."""
    result = run(plan)
    failures = [Failure(plan.seed, violation.rule, violation.text) for violation in judged(result)]
    if twice and run(plan).digest != result.digest:
        failures.append(Failure(plan.seed, DETERMINISM, "the second run of the same seed went otherwise"))
    return result, failures


def campaign(seeds: Iterable[int], *, again_every: int = 1, **options: Any) -> Figures:
    """Examine seeds one after the other, each that `again_every` divides twice; 0: none.

    `options` are those of `plan.draw`.
    """
    figures = Figures()
    began = time.perf_counter()
    with silence():
        for seed in seeds:
            twice = again_every > 0 and seed % again_every == 0
            result, failures = examine(draw(seed, **options), twice=twice)
            figures.repeated += twice and DETERMINISM not in {failure.rule for failure in failures}
            figures.runs += 1
            figures.timed += result.plan.timed
            figures.counts += result.counts
            if not result.plan.timed:
                two = check(result.history, rules={Rule.EXCLUSION}, bound=result.plan.bound)
                figures.counts["two holders, while clocks jumped"] += bool(two)
            figures.failed += bool(failures)
            figures.failures = (figures.failures + failures)[:KEPT]
    figures.seconds = time.perf_counter() - began
    return figures


def shared_campaign(
    seeds: range, *, jobs: int | None = None, again_every: int = 1, **options: Any
) -> Generator[Figures, None, None]:
    """Examine seeds in several processes; yields the figures so far."""
    figures = Figures()
    began = time.perf_counter()
    batches = [seeds[i : i + BATCH] for i in range(0, len(seeds), BATCH)]
    pool = ProcessPoolExecutor(jobs or os.cpu_count(), initializer=gc.freeze)
    try:
        for part in pool.map(partial(campaign, again_every=again_every, **options), batches):
            figures.add(part)
            figures.seconds = time.perf_counter() - began
            yield figures
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the rest


@contextmanager
def silence() -> Iterator[None]:
    """Keep what the library logs about faults out of the output."""
    log = logging.getLogger("aioredlock_ng")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
