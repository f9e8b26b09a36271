"""The search for what the fences and the quarantine must never do: many runs of `fence_world`, and figures.

For a long campaign:

    python -m tests.simulation.fence_search --seeds 100000
    python -m tests.simulation.fence_search --seeds 100000 --mixed
    python -m tests.simulation.fence_search --seeds 100000 --permits
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from .fence_rules import SHIPPING, VARIANTS
from .fence_world import Rule, World
from .searching import ViolationError

SIZES: Final = (1, 2, 3, 4, 5, 7)
"""Numbers of nodes that are searched."""

TIMED_EVERY: Final = 3
"""One run in `TIMED_EVERY` has exclusion checked, too."""


@dataclass
class Figures:
    """The results of a campaign."""

    runs: int = 0
    eventful: int = 0
    """Runs in which there was more than one fence, so that there was something to find."""
    events: Counter[str] = field(default_factory=Counter)
    fences: Counter[int] = field(default_factory=Counter)
    """How many fences were made, by the number of nodes."""
    violations: list[tuple[int, ViolationError]] = field(default_factory=list)
    """Seeds, and what was found."""

    def __str__(self) -> str:
        lines = [f"{self.runs} runs, in {self.eventful} of them several fences"]
        lines += [f"{count:9}  fences with {size} nodes" for size, count in sorted(self.fences.items())]
        lines += [f"{count:9}  {event}" for event, count in sorted(self.events.items())]
        lines += [f"seed {seed}: {error}" for seed, error in self.violations]
        return "\n".join([*lines, f"{len(self.violations)} violations"])


def world(seed: int, *, timed: bool | None = None, **options: Any) -> World:
    """Build the run of `seed`; all sizes take turns, and so does `timed` unless it is given.

    `options` are those of `World`.
    """
    if timed is None:
        timed = seed // len(SIZES) % TIMED_EVERY == 0
    return World(seed, size=_size(seed), timed=timed, **options)


def _size(seed: int) -> int:
    return SIZES[seed % len(SIZES)]


def campaign(seeds: Iterable[int], **options: Any) -> Figures:
    """Run all seeds; `options` are those of `world`."""
    figures = Figures()
    for seed in seeds:
        run = world(seed, **options)
        try:
            run.run()
        except ViolationError as error:
            figures.violations.append((seed, error))
        figures.runs += 1
        figures.eventful += run.fences > 1
        figures.events.update(run.counts)
        figures.fences[run.size] += run.fences
    return figures


def first(
    rule: Rule,
    seeds: Iterable[int],
    *,
    sizes: Container[int] = SIZES,
    needs: Iterable[str] = (),
    timed: bool = False,
    **options: Any,
) -> int | None:
    """Return the first seed, of a size among `sizes`, that breaks that rule.

    `options` are those of `world`.  `needs` saves time: runs without these kinds of faults or traits cannot
    find it, and are skipped.
    """
    wanted = set(needs)
    for seed in seeds:
        if _size(seed) not in sizes:
            continue
        run = world(seed, timed=timed, **options)
        if not wanted <= run.traits.union(run.kinds):
            continue
        try:
            run.run()
        except ViolationError as error:
            if error.rule is rule:
                return seed
    return None


def main() -> None:
    """Run from the command line."""
    variants = {name: rules for about in VARIANTS.values() for name, rules in about.items()}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20_000, help="how many runs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--rules", choices=[*variants], help="a broken variant instead")
    parser.add_argument("--mixed", action="store_true", help="readers and writers beside mutexes")
    parser.add_argument("--permits", action="store_true", help="permits of semaphores instead of mutexes")
    options = parser.parse_args()
    kinds = {"mixed": options.mixed, "permits": options.permits}
    kinds["rules"] = variants.get(options.rules, SHIPPING)
    began = time.perf_counter()
    seeds = range(options.start, options.start + options.seeds)
    figures = campaign(seeds, **kinds)
    print(figures)
    print(f"{time.perf_counter() - began:.0f} s")
    if any(error.rule is not Rule.LAW for _, error in figures.violations):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
