"""Count what ran in two runs of pytest together, so that CI can tell that nothing was left out.

    pytest --tally quick.json                             what is collected and what runs is written down
    pytest -m "campaign or …" --tally-after quick.json    the closing line counts both runs

The second run fails when a test that was collected has run in neither of them, or in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

_SHOWN: Final = 20


class Ran(NamedTuple):
    """A run of pytest."""

    collected: set[str]
    """The tests that it found, chosen or not."""
    reports: list[pytest.TestReport]
    """How each of those that it chose went."""


def left_out(first: Ran, second: Ran) -> list[str]:
    """Return what keeps two runs from being one run of everything."""
    one, two = ({report.nodeid for report in ran.reports} for ran in (first, second))
    problems = {
        "collected by one run only": first.collected ^ second.collected,
        "not run": (first.collected | second.collected) - one - two,
        "run twice": one & two,
    }
    return [f"{what}: {test}" for what, tests in problems.items() for test in sorted(tests)]


def add_options(parser: pytest.Parser) -> None:
    """Say which of the two runs this is."""
    parser.addoption("--tally", metavar="FILE", help="write down what was collected, and what ran")
    parser.addoption("--tally-after", metavar="FILE", help="be the second part of the run of that tally")


def begin(config: pytest.Config) -> None:
    """Count if the run is one of two."""
    if config.option.tally or config.option.tally_after:
        config.pluginmanager.register(Tally(config))


class Tally:
    """The plugin, in the process that tells and in its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._to: str | None = config.option.tally
        self._after: str | None = config.option.tally_after
        self._is_worker = hasattr(config, "workeroutput")
        self._ran = Ran(set(), [])
        self._problems: list[str] = []

    @pytest.hookimpl(tryfirst=True)  # before -m chooses
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take down what there is."""
        self._ran.collected.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has collected; one that has crashed tells nothing."""
        self._ran.collected.update(getattr(node, "workeroutput", {}).get("collected", ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down what counts in the closing line."""
        if self._category(report):
            self._ran.reports.append(report)

    def _category(self, report: pytest.TestReport) -> str:
        return str(self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write it down, or add what was written down before."""
        if self._is_worker:
            self._config.workeroutput["collected"] = sorted(self._ran.collected)  # type: ignore[attr-defined]
            return
        if self._to:
            self._write(Path(self._to))
        if self._after:
            before = self._read(Path(self._after))
            self._problems = left_out(before, self._ran)
            if self._problems and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._count(before.reports)

    def _count(self, reports: Iterable[pytest.TestReport]) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        for report in reports:
            terminal.stats.setdefault(self._category(report), []).append(report)

    def _write(self, path: Path) -> None:
        serialized = self._config.hook.pytest_report_to_serializable
        reports = [serialized(config=self._config, report=report) for report in self._ran.reports]
        for report in reports:
            report.pop("node", None)  # the worker, which xdist adds
        told = {"collected": sorted(self._ran.collected), "reports": reports}
        path.write_text(json.dumps(told, default=str))

    def _read(self, path: Path) -> Ran:
        told = json.loads(path.read_text())
        report = self._config.hook.pytest_report_from_serializable
        reports = [report(config=self._config, data=data) for data in told["reports"]]
        for each in reports:
            if isinstance(each.longrepr, list):  # of a test that was skipped: JSON has no tuples
                each.longrepr = tuple(each.longrepr)
        return Ran(set(told["collected"]), reports)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is wrong."""
        for problem in self._problems[:_SHOWN]:
            terminalreporter.write_line(problem, red=True)
        if len(self._problems) > _SHOWN:
            terminalreporter.write_line(f"… and {len(self._problems) - _SHOWN} more", red=True)
