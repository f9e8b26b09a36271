"""Run the mutation check from the command line; prints a table in Markdown."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import check
from .check import Copy, Outcome, Result
from .mutation import Mutation
from .mutations import MUTATIONS


def main() -> None:
    """Break the rules one by one; exit with 1 unless a test notices every time."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=check.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="TEXT", help="mutations whose rule and name contain this")
    parser.add_argument(
        "--suite", action="store_true", help="if a mutation survives its test, run all others"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if (options.only or "") in str(mutation)]
    if not chosen:
        parser.error(f"no mutation has {options.only!r} in its name")
    folder = Path(tempfile.mkdtemp(prefix="mutation-"))
    try:
        with contextlib.ExitStack() as stack:
            sys.exit(run(chosen, _copies(folder, stack), jobs=options.jobs, suite=options.suite))
    finally:
        shutil.rmtree(folder)


def run(mutations: Sequence[Mutation], copies: Iterator[Copy], *, jobs: int, suite: bool) -> int:
    """Check them all, and return the exit status."""
    began = time.perf_counter()
    sound = next(copies).run(tuple(dict.fromkeys(mutation.test for mutation in mutations)))
    if sound.outcome is not Outcome.SURVIVED or sound.skipped:
        print(f"nothing is proven: without a mutation the tests do not all pass: {sound.test} {sound.line}")
        return 1
    print("| rule | mutation | caught by | what it says | s |", "|---|---|---|---|---:|", sep="\n")
    caught = 0
    for mutation, result in zip(mutations, _results(mutations, copies, jobs=jobs, suite=suite), strict=True):
        caught += result.outcome is Outcome.CAUGHT
        print(row(mutation, result), flush=True)
    print(f"\n{len(mutations)} mutations, {caught} caught, in {time.perf_counter() - began:.0f} s")
    return caught < len(mutations)


def _copies(folder: Path, stack: contextlib.ExitStack) -> Iterator[Copy]:
    for number in itertools.count():
        own = folder / str(number)
        own.mkdir()
        yield stack.enter_context(contextlib.closing(Copy(own)))


def _results(
    mutations: Sequence[Mutation], copies: Iterator[Copy], *, jobs: int, suite: bool
) -> Iterator[Result]:
    """Check them by `jobs` threads, each with a copy of its own; results come in the order of mutations."""
    mine = threading.local()
    making = threading.Lock()

    def prepare() -> None:
        with making:
            mine.copy = next(copies)

    def one(mutation: Mutation) -> Result:
        return check.check(mine.copy, mutation, suite=suite)

    with ThreadPoolExecutor(jobs, initializer=prepare) as pool:
        yield from pool.map(one, mutations)


def row(mutation: Mutation, result: Result) -> str:
    """Return one line of the table."""
    caught = result.outcome is Outcome.CAUGHT
    test = f"`{result.test.removeprefix('tests/')}`" if caught else f"**{result.outcome}** {result.test}"
    cells = (mutation.rule, mutation.name, test, result.line, f"{result.seconds:.1f}")
    clean: Callable[[str], str] = lambda cell: cell.replace("|", "\\|")  # noqa: E731 (one use, one line)
    return f"| {' | '.join(map(clean, cells))} |"


if __name__ == "__main__":
    main()
