"""A plain ``pytest`` runs the quick tier, which is small; CI runs the full one, too; shares are a whole."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import QUICK, TIERS

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def test_every_pattern_names_files() -> None:
    """A file that was moved leaves no pattern behind that means nothing."""
    for pattern in (each for patterns in TIERS.values() for each in patterns):
        assert [path for path in TESTS.glob(pattern) if path.name.startswith("test_")], pattern


def collected(*arguments: str) -> list[str]:
    """Return the file of each test that pytest collects when called with these arguments."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=ours, capture_output=True, text=True, check=True
    )
    return [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.heavy
def test_the_quick_tier_is_small() -> None:
    """It has 1,700 tests at most, and some for each pattern of its row."""
    files = collected()
    assert len(files) <= 1_700
    empty = [each for each in TIERS[QUICK] if not fnmatch.filter(set(files), f"tests/{each}")]
    assert empty == []
