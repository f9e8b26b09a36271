"""A plain ``pytest`` runs the quick tier, which is small; CI runs the full one, too; shares are a whole."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import FULL, QUICK, SHARED, TIERS, Share, tier_of

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


@pytest.mark.parametrize(
    ("file", "marks", "tier"),
    [
        ("unit/test_tiers.py", (), QUICK),
        ("unit/test_tiers.py", ("heavy", "process"), "process"),
        ("unit/test_no_such.py", ("asyncio",), FULL),
        ("environments/test_pythons.py", (), "process"),
        ("environments/test_pythons.py", ("asyncio", FULL), FULL),
        ("environments/test_pythons.py", (FULL, "campaign"), "campaign"),
    ],
)
def test_a_mark_of_its_own_wins(file: str, marks: tuple[str, ...], tier: str) -> None:
    """A test is of its file's tier unless a mark says otherwise."""
    assert tier_of(file, marks) == tier


@pytest.mark.parametrize("pattern", [each for patterns in TIERS.values() for each in patterns])
def test_every_pattern_names_files(pattern: str) -> None:
    """A file that was moved leaves no pattern behind that means nothing."""
    assert [path for path in TESTS.glob(pattern) if path.name.startswith("test_")]


@pytest.mark.parametrize("tier", [*TIERS, FULL])
def test_shares_are_a_whole(tier: str) -> None:
    """Each test of a long tier is in one of the shares, and all others are in each."""
    shares = [Share.parse(f"{number}/3") for number in (1, 2, 3)]
    for test in map(str, range(100)):
        assert sum(share.has(test, tier) for share in shares) == (1 if tier in SHARED else 3)
    assert all(any(share.has(str(test), tier) for test in range(100)) for share in shares)


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
    """It has 2,500 tests at most, and some for each pattern of its row."""
    files = collected()
    assert len(files) <= 2_500
    empty = [each for each in TIERS[QUICK] if not fnmatch.filter(set(files), f"tests/{each}")]
    assert empty == []


@pytest.mark.heavy
def test_what_is_named_is_more_than_quick() -> None:
    """A folder is run in full, and a file whatever its tier."""
    folder = collected("tests/nodes")
    assert 0 < len(collected("-m", "quick", "tests/nodes")) < len(folder)
    file = "tests/nodes/test_client_node.py"
    assert len(collected(file)) > folder.count(file) > 0
