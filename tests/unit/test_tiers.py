"""A plain ``pytest`` runs the quick tier: something of every folder; what is named runs whatever it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import QUICK, SHARED, TIERS, Share, tier_of

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


@pytest.mark.parametrize(
    ("file", "marks", "tier"),
    [
        ("unit/test_tiers.py", (), QUICK),
        ("unit/test_tiers.py", ("heavy", "process"), "process"),
        ("environments/test_pythons.py", (), "process"),
        ("environments/test_pythons.py", ("asyncio", QUICK), QUICK),
        ("environments/test_pythons.py", (QUICK, "campaign"), "campaign"),
    ],
)
def test_a_mark_of_its_own_wins(file: str, marks: tuple[str, ...], tier: str) -> None:
    """A test is quick unless its file or a mark says otherwise."""
    assert tier_of(file, marks) == tier


@pytest.mark.parametrize("pattern", [each for patterns in TIERS.values() for each in patterns])
def test_every_pattern_names_files(pattern: str) -> None:
    """A file that was moved leaves no pattern behind that means nothing."""
    assert [path for path in TESTS.glob(pattern) if path.name.startswith("test_")]


@pytest.mark.parametrize("tier", [*TIERS, QUICK])
def test_shares_are_a_whole(tier: str) -> None:
    """Each test of a long tier is in one of the shares, and all others are in each."""
    shares = [Share.parse(f"{number}/3") for number in (1, 2, 3)]
    for test in map(str, range(100)):
        assert sum(share.has(test, tier) for share in shares) == (1 if tier in SHARED else 3)
    assert all(any(share.has(str(test), tier) for test in range(100)) for share in shares)


@pytest.mark.process
def test_every_folder_has_quick_tests() -> None:
    """The README's command runs something of each folder that has tests."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=ours, capture_output=True, text=True, check=True)
    folders = {path.parent.relative_to(ROOT).as_posix() for path in TESTS.rglob("test_*.py")}
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert {name.partition("::")[0].rpartition("/")[0] for name in collected} == folders
