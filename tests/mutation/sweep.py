"""A sweep for what no test would notice: small mistakes of any kind, in any module of the package.

    pip install coverage
    python -m tests.mutation.sweep --record tests/unit -n2                # which test runs which line
    python -m tests.mutation.sweep _round/round.py _node/ --each 8 --json found.jsonl

A development tool, not a part of CI.  `python -m tests.mutation` proves that broken rules are noticed; this
looks where no rule has been thought of.  For every mutant the tests that run its line are run until one
fails: those of the module's own test file, then the quickest.  What survives is either missing in the tests,
or makes no difference ("equivalent"): that is for people to decide.

The package ends processes: a mistake there may end any of this user's.  So the tests of mutants run in a PID
namespace of their own, where only their own processes can be seen (Linux, root).  Where there is none,
mutants of modules that send signals are not run.

Recordings add up, folder by folder; delete `.mutation` when the package has changed.  A death by a time
limit counts only if it comes a second time.  A sweep that was broken off goes on where its `--json` ends.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .check import Copy, Outcome, Result
from .mutation import PACKAGE, ROOT
from .operators import Mutant, mutants_of
from .recorder import RECORD

RECORDS: Final = ROOT / ".mutation"
"""Where it is kept which test runs which line."""

SECONDS_OF_TESTS: Final = 8.0
"""Seconds that the tests of one mutant may take together, when nothing is broken."""

MOST_TESTS: Final = 80

TEST_LIMIT: Final = 60
"""Seconds for one test: generous, for a slow machine is no death."""

UNTOUCHED: Final = "UNTOUCHED"
"""The end of a mutant whose line no recorded test runs."""

KILLED: Final = "killed"

DANGEROUS: Final = "DANGEROUS"
"""The end of a mutant that might end processes of others."""

SIGNALLING: Final = ("_cli/_guard/", "_cli/run", "testing/_server.py", "testing/local_nodes.py", "_demo.py")
"""Beginnings of the names of modules that send signals: with a mistake, perhaps to every process."""

ALONE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Runs a command where it sees no processes but its own."""


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
    parser.add_argument("--each", type=int, metavar="N", help="take at most N mutants of each module")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every outcome as a line of JSON")
    options, others = parser.parse_known_args()
    if options.record:
        sys.exit(record([*options.paths, *others]))
    if others:
        parser.error(f"unknown arguments: {' '.join(others)}")
    done = _done(options.json)
    mutants = [each for each in _drawn(options.paths, options.each, options.seed) if str(each) not in done]
    folder = Path(tempfile.mkdtemp(prefix="sweep-"))
    alone = _alone()
    try:
        sweep(mutants, Copy(folder, within=alone), options.json, alone=bool(alone))
    finally:
        shutil.rmtree(folder)


def record(arguments: Sequence[str]) -> int:
    """Run pytest, and note which test runs which line; returns its exit status."""
    RECORDS.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no"]
    return subprocess.run(
        [*command, "-p", "tests.mutation.recorder", *arguments],
        cwd=ROOT,
        env=os.environ | {RECORD: str(RECORDS)},
        check=False,
    ).returncode


def _drawn(paths: Iterable[str], each: int | None, seed: int) -> Iterator[Mutant]:
    """Choose mutants of every module, in the order of its lines; of one module always the same ones."""
    for path in paths:
        place = ROOT / PACKAGE / path
        for source in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            file = source.relative_to(ROOT / PACKAGE).as_posix()
            found = list(mutants_of(file, source.read_bytes()))
            if each is not None and each < len(found):
                found = random.Random(f"{seed}:{file}").sample(found, each)
            yield from sorted(found, key=lambda mutant: mutant.begin)


def _done(journal: Path | None) -> set[str]:
    """Return the mutants of an earlier run."""
    if journal is None or not journal.exists():
        return set()
    return {json.loads(line)["mutant"] for line in journal.read_text().splitlines()}


class Records:
    """Which tests run which line, and how long each takes."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], set[str]] = {}
        self._seconds: dict[str, float] = {}
        for path in RECORDS.glob("*.json"):
            self._read(json.loads(path.read_text()))

    def _read(self, told: dict[str, Any]) -> None:
        tests = [test for test, _ in told["tests"]]
        self._seconds |= dict(told["tests"])
        for path, lines in told["lines"].items():
            file = Path(path).relative_to(ROOT / PACKAGE).as_posix()
            for line, numbers in lines.items():
                run_by = self._lines.setdefault((file, int(line)), set())
                run_by.update(tests[number] for number in numbers)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests for a mutant; for a line that is run at import any of its module."""
        tests = self._lines.get((mutant.file, mutant.line), set())
        if mutant.at_import:
            tests = {test for (file, _), some in self._lines.items() if file == mutant.file for test in some}
        namesake = f"test_{Path(mutant.file).stem.strip('_')}.py::"
        chosen, total = [], 0.0
        for _, seconds, test in sorted((namesake not in each, self._seconds[each], each) for each in tests):
            total += seconds
            if chosen and (total > SECONDS_OF_TESTS or len(chosen) == MOST_TESTS):
                break
            chosen.append(test.removeprefix("tests/"))
        return chosen


def sweep(mutants: Sequence[Mutant], copy: Copy, journal: Path | None, *, alone: bool) -> None:
    """Try the mutants one by one, and print what survives."""
    records, outcomes = Records(), Counter[str]()
    for mutant in mutants:
        tests = records.tests_of(mutant)
        if alone or not mutant.file.startswith(SIGNALLING):
            outcome, result = _tried(mutant, copy, tests)
        else:
            outcome, result = DANGEROUS, None
        outcomes[outcome] += 1
        if outcome != KILLED:
            print(f"{outcome:9} {mutant}", flush=True)
        if journal is not None:
            told = {"mutant": str(mutant), "outcome": outcome, "tests": len(tests)} | asdict(mutant)
            if result is not None:
                told |= {"by": result.test, "says": result.line, "seconds": round(result.seconds, 1)}
            with journal.open("a") as lines:
                print(json.dumps(told), file=lines)
    print(
        f"{len(mutants)} mutants: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    )


def _alone() -> Sequence[str]:
    """Return what keeps tests from the processes of others; nothing where that cannot be had."""
    if shutil.which(ALONE[0]) is None:
        return ()
    tried = subprocess.run([*ALONE, "true"], capture_output=True, check=False)
    return () if tried.returncode else ALONE


def _tried(mutant: Mutant, copy: Copy, tests: Sequence[str]) -> tuple[str, Result | None]:
    """Run tests on a mutant: a failure of any kind is a death."""
    if not tests:
        return UNTOUCHED, None
    path = copy.root / PACKAGE / mutant.file
    source = path.read_bytes()
    copy.write(mutant.file, mutant.apply(source).decode())
    try:
        result = copy.run(tests, test_limit=TEST_LIMIT)
        if "Timeout" in result.line or "no end within" in result.line:
            copy.close()
            result = copy.run(tests, test_limit=TEST_LIMIT)
    finally:
        copy.close()  # and what the mutant has left behind in its namespace
        copy.write(mutant.file, source.decode())
    alive = result.outcome in (Outcome.SURVIVED, Outcome.SKIPPED)
    return str(result.outcome) if alive else KILLED, result


if __name__ == "__main__":
    main()
