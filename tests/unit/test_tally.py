"""CI runs the suite in two parts, and its closing line counts both: nothing may be in neither, or in both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.interpreters import ROOT

CONFTEST = """
from tests import tally

def pytest_addoption(parser):
    tally.add_options(parser)

def pytest_configure(config):
    tally.begin(config)
"""

SUITE = """
import pytest

def test_one(): pass
def test_two(): pytest.skip("not here")

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.slow
def test_three(number): assert number == 1

@pytest.mark.slow
def test_four(): pass

@pytest.mark.slow
def test_five(): pytest.skip("nor there")
"""

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a small suite."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, dict[str, int], str]:
    """Run a part of it; return the exit code, the closing line's numbers, and all that was said."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {**ours, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    numbers = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)\b", last)}
    return done.returncode, numbers, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_the_closing_line_counts_both_runs(folder: Path, workers: str) -> None:
    """Passed, failed and skipped tests of the first run are in it; failures of either fail a run."""
    first, numbers, _ = run(folder, workers, "--tally", "first", "-m", "slow")
    assert (first, numbers["passed"], numbers["failed"]) == (1, 2, 1)
    second, numbers, said = run(folder, workers, "--tally-after", "first", "-m", "not slow", "-rs")
    assert second == 0
    assert (numbers["passed"], numbers["failed"], numbers["skipped"]) == (3, 1, 2), said
    assert "not here" in said
    assert "nor there" in said
    assert "not run" not in said


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        ("slow", "slow", "not run: test_it.py::test_one\n"),
        ("not slow", "", "run twice: test_it.py::test_one\n"),
    ],
)
def test_two_runs_are_not_one(folder: Path, first: str, second: str, complaint: str) -> None:
    """A test that neither of them ran, or both, is named, and the second one fails."""
    run(folder, "-n0", "--tally", "first", "-m", first, "--deselect", "test_it.py::test_three[2]")
    code, _, said = run(
        folder, "-n0", "--tally-after", "first", "-m", second, "--deselect", "test_it.py::test_three[2]"
    )
    assert code == 1
    assert complaint in said
    assert "not run: test_it.py::test_three[2]" in said


def test_a_file_that_one_run_has_not_seen(folder: Path) -> None:
    """Two runs that collect different tests are no parts of one."""
    run(folder, "--tally", "first", "-m", "not slow")
    (folder / "test_new.py").write_text("def test_new(): pass")
    code, _, said = run(folder, "--tally-after", "first", "-m", "slow or not slow")
    assert code == 1
    assert "collected by one run only: test_new.py::test_new" in said
