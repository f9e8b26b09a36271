"""A sweep for what no test would notice: small mistakes of any kind, in any module of the package.

    pip install coverage
    python -m tests.mutation.sweep --record tests/unit tests/nodes          # which test runs which line
    python -m tests.mutation.sweep _ask.py _node/ --share 0.1 --json found.jsonl

A development tool, not a part of CI.  `python -m tests.mutation` proves that broken rules are noticed; this
looks where no rule has been thought of.  For every mutant the tests that run its line are run, the quickest
first, until one fails.  What survives is either missing in the tests, or makes no difference ("equivalent"):
that is for people to decide.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from .check import Copy, Outcome
from .mutation import PACKAGE, ROOT
from .operators import Mutant, mutants_of
from .recorder import RECORD

RECORDS: Final = ROOT / ".mutation"
"""Where it is kept which test runs which line."""

SECONDS_OF_TESTS: Final = 20.0
"""How long the tests of one mutant may take all in all, when nothing is broken."""

MOST_TESTS: Final = 250

UNTOUCHED: Final = "UNTOUCHED"
"""What becomes of a mutant whose line no recorded test runs."""


def main() -> None:
    """Record, or sweep; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", help="with --record tests, else modules or folders of the package"
    )
    parser.add_argument("--record", action="store_true", help="run these tests and note what they run")
    parser.add_argument(
        "--share", type=float, default=1.0, metavar="S", help="take this share of the mutants"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every outcome as a line of JSON")
    options = parser.parse_args()
    if options.record:
        sys.exit(record(options.paths))
    chance = random.Random(options.seed)
    mutants = [mutant for mutant in _mutants(options.paths) if chance.random() < options.share]
    folder = Path(tempfile.mkdtemp(prefix="sweep-"))
    try:
        sweep(mutants, Copy(folder), options.json)
    finally:
        shutil.rmtree(folder)


def record(tests: Sequence[str]) -> int:
    """Run tests, and note which of them runs which line; returns pytest's exit status."""
    shutil.rmtree(RECORDS, ignore_errors=True)
    RECORDS.mkdir()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "--tb=no",
        "-p",
        "tests.mutation.recorder",
    ]
    return subprocess.run(
        [*command, *tests], cwd=ROOT, env=os.environ | {RECORD: str(RECORDS)}, check=False
    ).returncode


def _mutants(paths: Sequence[str]) -> Iterator[Mutant]:
    for path in paths:
        place = ROOT / PACKAGE / path
        for file in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            yield from mutants_of(file.relative_to(ROOT / PACKAGE).as_posix(), file.read_bytes())


class Records:
    """Which tests run which line, and how long each takes."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], set[str]] = {}
        self._seconds: dict[str, float] = {}
        for path in RECORDS.glob("*.json"):
            told = json.loads(path.read_text())
            self._seconds |= told["tests"]
            for file, lines in told["lines"].items():
                name = Path(file).relative_to(ROOT / PACKAGE).as_posix()
                for line, tests in lines.items():
                    self._lines.setdefault((name, int(line)), set()).update(tests)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests for a mutant, the quickest first; for a line run at import any of its module."""
        tests = self._lines.get((mutant.file, mutant.line), set())
        if "" in tests:
            tests = {test for (file, _), some in self._lines.items() if file == mutant.file for test in some}
        known = sorted((self._seconds[test], test) for test in tests if test in self._seconds)
        chosen, total = [], 0.0
        for seconds, test in known[:MOST_TESTS]:
            total += seconds
            if total > SECONDS_OF_TESTS and chosen:
                break
            chosen.append(test.removeprefix("tests/"))
        return chosen


def sweep(mutants: Sequence[Mutant], copy: Copy, journal: Path | None) -> None:
    """Try the mutants one by one, and print what survives."""
    records, outcomes = Records(), Counter[str]()
    for mutant in mutants:
        tests = records.tests_of(mutant)
        outcome = _tried(mutant, copy, tests) if tests else UNTOUCHED
        outcomes[outcome] += 1
        if outcome != "killed":
            print(f"{outcome:9} {mutant}", flush=True)
        if journal is not None:
            with journal.open("a") as lines:
                print(json.dumps(asdict(mutant) | {"outcome": outcome, "tests": len(tests)}), file=lines)
    print(
        f"{len(mutants)} mutants: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    )


def _tried(mutant: Mutant, copy: Copy, tests: Sequence[str]) -> str:
    """Run tests on a mutant: a failure of any kind is a death."""
    path = copy.root / PACKAGE / mutant.file
    source = path.read_bytes()
    copy.write(mutant.file, mutant.apply(source).decode())
    try:
        outcome = copy.run(tests).outcome
    finally:
        copy.write(mutant.file, source.decode())
    return str(outcome) if outcome in (Outcome.SURVIVED, Outcome.SKIPPED) else "killed"


if __name__ == "__main__":
    main()
