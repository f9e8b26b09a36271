"""A pytest plugin that writes down how a run on a broken copy ended: see `check`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import aioredlock_ng
from aioredlock_ng import LockError

REPORT = "AIOREDLOCK_MUTATION_REPORT"
"""Environment variable: the file to write to."""

VERDICTS = (AssertionError, pytest.fail.Exception, LockError)
"""Findings of a test: an assertion, or a lock that goes wrong.  A careless edit raises anything else."""


class Witness:
    """Counts what passed, and keeps the first failure."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._passed = 0
        self._skipped = 0
        self._failure: dict[str, Any] | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Take down one part of a test."""
        report: pytest.TestReport = yield
        self._passed += report.passed and report.when == "call"
        self._skipped += report.skipped
        if report.failed and self._failure is None and call.excinfo is not None:
            sound = report.when == "call" and call.excinfo.errisinstance(VERDICTS)
            lines = call.excinfo.exconly().splitlines() or [""]
            self._failure = {"test": item.nodeid, "sound": sound, "line": lines[0].strip()}
        return report

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        told = {"passed": self._passed, "skipped": self._skipped, "failure": self._failure}
        self._report.write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    """Bear witness for the copy that pytest runs in, not for the package that is installed."""
    home = Path(str(aioredlock_ng.__file__)).resolve()
    if not home.is_relative_to(config.rootpath.resolve()):
        raise pytest.UsageError(f"{home} is tested, not the copy under {config.rootpath}")
    if report := os.environ.get(REPORT):
        config.pluginmanager.register(Witness(Path(report)))
