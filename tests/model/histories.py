"""Has TLC explain what the simulator saw: a judge of histories that is not the simulator's own (History.tla).

``python -m tests.model.histories --seeds 5000`` does it by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.simulation import election_world
from tests.simulation.campaign import silence
from tests.simulation.checks_claims import by_name
from tests.simulation.history import Claim
from tests.simulation.plan import draw
from tests.simulation.world import run

from .tlc import output

BATCH: Final = 100
"""Seeds whose histories TLC is given at a time."""

MOMENT: Final = 1e-9
"""Seconds for which a term lasts at least that is over when it is won."""

_ORDER: Final = {"ask": 0, "end": 1, "won": 2, "reported": 3}
"""At the same moment: a client may have asked before the other had won, and a lease begins where one ends."""


@dataclass(frozen=True)
class NameHistory:
    """The history of one name, or slot."""

    origin: str
    """Which seed, and which name."""
    claims: Sequence[Claim]
    reports: Sequence[tuple[float, int, int]] = ()
    """Of an election: when which observer, from 1 on, heard of the leader with which term."""

    @property
    def text(self) -> str:
        """The history in TLA+."""
        ranks = {fence: n for n, fence in enumerate(sorted({c.fence for c in self.claims if c.fence}), 1)}
        events = [
            (moment, _ORDER[kind], number, kind, 0)
            for number, claim in enumerate(self.claims, 1)
            for moment, kind in ((claim.asked, "ask"), (claim.since, "won"), (claim.until, "end"))
        ]
        of_term = {claim.fence: number for number, claim in enumerate(self.claims, 1)}
        events += [
            (moment, _ORDER["reported"], of_term[term], "reported", observer)
            for moment, observer, term in self.reports
        ]
        happened = ", ".join(
            f'<<"{kind}", {number}, {observer}>>' for _, _, number, kind, observer in sorted(events)
        )
        leases = ", ".join(
            f"[fence |-> {ranks[claim.fence] if claim.fence else 0}, alone |-> {str(claim.alone).upper()},"
            f" from |-> {self._writer_of(claim)}]"
            for claim in self.claims
        )
        return f"[events |-> <<{happened}>>, leases |-> <<{leases}>>]"

    def _writer_of(self, reader: Claim) -> int:
        """Return the number of the lease that became this one; 0: none did (R23)."""
        for number, claim in enumerate(self.claims, 1):
            if claim.alone and not reader.alone and claim.owner == reader.owner:
                return number
        return 0


def simulated(seeds: Iterable[int], **options: Any) -> Iterator[NameHistory]:
    """Simulate; yield the histories of the runs in which there must never be two holders (A1, A2)."""
    with silence():
        for seed in seeds:
            plan = draw(seed, **options)
            if not plan.timed:
                continue
            for name, claims in by_name(run(plan).history.claims).items():
                believed = [claim for claim in claims if claim.since < claim.until]
                if believed:
                    yield NameHistory(f"seed {seed}, {name}", believed)


def elections(seeds: Iterable[int]) -> Iterator[NameHistory]:
    """Simulate elections; yield the histories of terms, and of what observers hear."""
    with silence():
        for seed in seeds:
            world = election_world.World(seed).run()
            terms = [
                Claim(
                    client=0, task=0, names=(election_world.NAME,), owner=b"%d" % number, fence=number,
                    asked=term.asked, since=term.since, until=max(term.until, term.since + MOMENT),
                    stopped=term.until,
                )
                for number, term in world.terms.items()
                if term.asked
            ]  # fmt: skip
            reports = [(moment, observer, leader.term) for moment, observer, leader in world.reports]
            yield NameHistory(f"election, seed {seed}", terms, reports)


def unexplained(histories: Sequence[NameHistory], folder: Path) -> list[NameHistory]:
    """Return the histories for which TLC finds no explanation."""
    said = output("History", {"Histories": "<<" + ",\n".join(one.text for one in histories) + ">>"}, folder)
    explained = {int(number) for number in re.findall(r'<<"explained", (\d+)>>', said)}
    assert "Model checking completed" in said, said[-2000:]
    return [one for number, one in enumerate(histories, 1) if number not in explained]


def main() -> None:
    """Simulate and judge many seeds; exit with 1 if a history cannot be explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--crowded", action="store_true", help="processes of many tasks that ask in step")
    parser.add_argument("--elections", action="store_true", help="terms, and what observers hear")
    given = parser.parse_args()
    began, found, leases, wrong = time.monotonic(), 0, 0, list[NameHistory]()
    for first in range(given.start, given.start + given.seeds, BATCH):
        last = min(first + BATCH, given.start + given.seeds)
        seeds = range(first, last)
        histories = list(elections(seeds) if given.elections else simulated(seeds, crowded=given.crowded))
        found += len(histories)
        leases += sum(len(one.claims) for one in histories)
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            wrong += unexplained(histories, Path(folder))
        took = time.monotonic() - began
        print(
            f"{last - given.start} seeds, {found:,} histories of {leases:,} leases, {took:.0f} s", flush=True
        )
    for one in wrong:
        print(f"no explanation: {one.origin}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
