"""The mutation check: break the protocol's rules one by one, and see which test notices.

    python -m tests.mutation
    python -m tests.mutation --only "drift" --suite

It works in private copies of the project; only those are changed.  A mutation is *caught* when a test fails
by what it finds.  Code that does not run proves nothing: that is *broken*, and so is a test that fails before
it has begun.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from .mutation import ROOT, Edit, Mutation, TextEdit
from .package import Package
from .witness import REPORT

LEFT_OUT: Final = (
    ".git",
    ".mutation",
    ".venv",
    "venv",
    "__pycache__",
    ".*_cache",
    "*.egg-info",
    "build",
    "dist",
    "plots",
)
"""Files that no test chosen here needs."""

TEST_LIMIT: Final = 30
"""Seconds: a rule that is broken may well leave a test waiting for ever."""

RUN_LIMIT: Final = 120.0
"""Seconds for the tests of one mutation."""

SUITE: Final = ("unit", "conformance")
"""The folders that may show that there is a test for a mutation after all."""

SUITE_LIMIT: Final = 1200.0

WITNESS: Final = "tests.mutation.witness"
"""The plugin that tells how a run ended."""

WARM: Final = "tests.mutation.warm"
"""The module that runs tests, as many runs as there are."""

_FAILED: Final = 1
"""Pytest's exit status when tests have failed."""


class Outcome(StrEnum):
    """The outcome of tests on a copy, broken or not."""

    CAUGHT = "caught"
    """A test failed by what it found."""
    SURVIVED = "SURVIVED"
    """Every test passed."""
    BROKEN = "BROKEN"
    """The code did not run, or no test began."""
    SKIPPED = "SKIPPED"
    """No test could run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run."""

    outcome: Outcome
    test: str = ""
    """The test that failed."""
    line: str = ""
    """The first line of what it said; of a run without a failure, the end of its output."""
    seconds: float
    skipped: int = 0
    """The number of tests that could not run here."""


class Copy:
    """A private copy of the project in a new folder, and a process that runs its tests until it is closed.

    `within` is a command that runs another one, like `nice`.
    """

    def __init__(self, folder: Path, *, within: Sequence[str] = ()) -> None:
        self.root = folder / "copy"
        self._report = folder / "report.json"
        self._output = folder / "output"
        self._package = Package(self.root)
        self._within = within
        self._warm: subprocess.Popen[str] | None = None
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT))

    def close(self) -> None:
        """End the process that runs tests; the next run starts another one."""
        if self._warm is not None:
            self._warm.communicate()
            self._warm = None

    @contextlib.contextmanager
    def broken(self, edits: Sequence[Edit | TextEdit]) -> Iterator[None]:
        """Change the package for as long as the block lasts."""
        after = self._package.broken(edits)
        before = {file: self._package.path(file).read_text() for file in after}
        try:
            for file, text in after.items():
                self.write(file, text)
            yield
        finally:
            for file, text in before.items():
                self.write(file, text)

    def write(self, file: str, text: str) -> None:
        """Write a file of the package."""
        path = self._package.path(file)
        path.write_text(text)
        # Bytecode is compared with its source by size and second: that is not enough here.
        if path.suffix == ".py":
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def run(self, tests: Sequence[str], *, limit: float = RUN_LIMIT, test_limit: int = TEST_LIMIT) -> Result:
        """Run tests until the first one fails."""
        self._report.unlink(missing_ok=True)
        names = [f"tests/{test}" for test in tests]
        options = ["-n0", "-x", "-q", "--tb=no", f"--timeout={test_limit}", "-p", WITNESS]
        # What has been imported before the fork is not ours, and need not have its assertions rewritten.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        order = {"arguments": [*options, *names], "output": str(self._output), "limit": limit}
        began = time.perf_counter()
        answer = self._ask(json.dumps(order))
        seconds = time.perf_counter() - began
        if not answer:
            self.close()
            return Result(
                outcome=Outcome.BROKEN, line="the process that runs tests has ended", seconds=seconds
            )
        if (status := json.loads(answer)) is None:
            return Result(outcome=Outcome.BROKEN, line=f"no end within {limit:.0f} s", seconds=seconds)
        return self._judge(status, seconds)

    def _ask(self, order: str) -> str:
        """Return the answer of the process that runs tests, with no text if it has none."""
        self._warm = self._warm or subprocess.Popen(
            [*self._within, sys.executable, "-m", WARM],
            cwd=self.root,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(order, file=self._warm.stdin, flush=True)
        return self._warm.stdout.readline()

    def _environment(self) -> dict[str, str]:
        """Return an environment in which the copy is imported, and no pytest around us is heeded."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return ours | {"PYTHONPATH": str(self.root), REPORT: str(self._report)}

    def _judge(self, status: int, seconds: float) -> Result:
        last = next(reversed(self._output.read_text(errors="replace").strip().splitlines()), "")
        if status not in (0, _FAILED) or not self._report.exists():
            return Result(outcome=Outcome.BROKEN, line=last, seconds=seconds)
        told = json.loads(self._report.read_text())
        if (failure := told["failure"]) is not None:
            outcome = Outcome.CAUGHT if failure["sound"] else Outcome.BROKEN
            return Result(outcome=outcome, test=failure["test"], line=failure["line"], seconds=seconds)
        if status:
            return Result(outcome=Outcome.BROKEN, line=last, seconds=seconds)
        outcome = Outcome.SURVIVED if told["passed"] else Outcome.SKIPPED
        return Result(outcome=outcome, line=last, seconds=seconds, skipped=told["skipped"])


def check(copy: Copy, mutation: Mutation, *, suite: bool = False) -> Result:
    """Break one rule in the copy and run its test; with `suite` all others, too, if that passes."""
    with copy.broken(mutation.edits):
        result = copy.run([mutation.test])
        if suite and result.outcome in (Outcome.SURVIVED, Outcome.SKIPPED):
            result = copy.run(SUITE, limit=SUITE_LIMIT)
    return result
