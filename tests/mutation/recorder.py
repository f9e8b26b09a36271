"""A pytest plugin that writes down which test runs which line, and for how long: see `sweep`."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

RECORD = "AIOREDLOCK_MUTATION_RECORD"
"""Environment variable: the folder to write to."""


class Recorder:
    """Measures coverage with the test that runs as its context."""

    def __init__(self, folder: Path) -> None:
        self._own = folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}"
        self._coverage = coverage.Coverage(
            data_file=str(self._own), source=["aioredlock_ng"], config_file=False
        )
        self._seconds: dict[str, float] = defaultdict(float)
        self._unusable: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Note what is run on behalf of this test."""
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long it took, and whether it can tell anything here."""
        self._seconds[report.nodeid] += report.duration
        if report.failed or report.skipped:
            self._unusable.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it down: for every file and line the tests that run it."""
        self._coverage.stop()
        data = self._coverage.get_data()
        tests = [test for test in self._seconds if test not in self._unusable]
        numbers = {test: number for number, test in enumerate(tests)}
        lines = {
            file: {
                line: [numbers[test] for test in run_by if test in numbers]
                for line, run_by in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        told = {"tests": [(test, round(self._seconds[test], 4)) for test in tests], "lines": lines}
        self._own.with_suffix(".json").write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    """Record in the processes that run tests."""
    if (folder := os.environ.get(RECORD)) and (
        hasattr(config, "workerinput") or not config.option.numprocesses
    ):
        config.pluginmanager.register(Recorder(Path(folder)))
