"""The map of the house in CONTRIBUTING leads to what is there, and leaves no part of the package out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioredlock_ng"
PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
MAP = PAGE.partition("## The map of the house")[2].partition("\n## ")[0]
ROWS = [re.findall(r"[^|]+", line) for line in MAP.splitlines() if line.startswith("| ")]
PARTS = [cells[0] for cells in ROWS if len(cells) == 2]
PLACES = [cells for cells in ROWS if len(cells) == 3 and "`" in cells[1]]
QUOTED = re.compile(r"`([^`]+)`")


def test_every_part_of_the_package_is_on_the_map():
    """Each folder and module stands in it once, and nothing stands in it that is not there."""
    told = [name for part in PARTS for name in QUOTED.findall(part)]
    there = {f"{each.name}/" for each in PACKAGE.iterdir() if each.is_dir() and each.name != "__pycache__"}
    there |= {each.name for each in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert sorted(told) == sorted(there)


@pytest.mark.parametrize("cells", PLACES, ids=lambda cells: cells[0].strip())
def test_what_is_looked_for_is_where_the_map_says(cells: list[str]):
    """The file is there, and defines what is named beside it."""
    (file,) = QUOTED.findall(cells[1])
    text = (PACKAGE / file).read_text()
    for name in QUOTED.findall(cells[2]):
        for part in name.split("."):
            assert re.search(rf"^ *(?:(?:async )?def|class) {part}\b|^{part}\b.*=", text, re.MULTILINE), name
