"""The map of the house in CONTRIBUTING leads to what is there, and leaves no part of the package out."""

from __future__ import annotations

import re
from pathlib import Path

import aioredlock_ng
from benchmarks import path
from tests.servers import Nodes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioredlock_ng"
PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
MAP = PAGE.partition("## The map of the house")[2].partition("\n## ")[0]
ROWS = [re.findall(r"[^|]+", line) for line in MAP.splitlines() if line.startswith("| ")]
PARTS = [cells[0] for cells in ROWS if len(cells) == 2]
PLACES = [cells for cells in ROWS if len(cells) == 3 and "`" in cells[1]]
WAY = MAP.partition("### What one acquire goes through")[2].partition("\n1. ")[2]
QUOTED = re.compile(r"`([^`]+)`")


def test_every_part_of_the_package_is_on_the_map():
    """Each folder and module stands in it once, and nothing stands in it that is not there."""
    told = [name for part in PARTS for name in QUOTED.findall(part)]
    there = {f"{each.name}/" for each in PACKAGE.iterdir() if each.is_dir() and each.name != "__pycache__"}
    there |= {each.name for each in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert sorted(told) == sorted(there)


def test_what_is_looked_for_is_where_the_map_says():
    """The file is there, and defines what is named beside it."""
    for cells in PLACES:
        (file,) = QUOTED.findall(cells[1])
        text = (PACKAGE / file).read_text()
        parts = (part for name in QUOTED.findall(cells[2]) for part in name.split("."))
        for part in parts:
            assert re.search(rf"^ *(?:(?:async )?def|class) {part}\b|^{part}\b.*=", text, re.MULTILINE), part


def test_the_package_tells_of_its_parts_in_the_order_of_the_map():
    """Its docstring and the map go the same way; the docstring may leave parts out."""
    order = [name.removesuffix(".py") for part in PARTS for name in QUOTED.findall(part)]
    outline = (aioredlock_ng.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]
    names = [re.split(r" {2,}", line)[0] for line in outline.splitlines()]
    told = [name for line in names for name in re.split(r", | and ", line)]
    assert len(told) >= 15
    assert told == sorted(told, key=order.index)


async def test_an_acquire_goes_through_the_files_of_the_map(shared_nodes: Nodes):
    """The list names them all, in the order in which they are first called, and functions that are called."""
    taken = (await path.take(shared_nodes.urls, "fenced", times=3)).acquires
    quoted = QUOTED.findall(re.sub(r"\s+", " ", WAY))
    *files, last = dict.fromkeys(name for name in quoted if name.endswith(".py"))
    assert (PACKAGE / last).is_file()  # of a lease, only what the standard library generates is called
    assert files in [list(dict.fromkeys(file for file, _ in steps)) for steps in taken]

    called = {function for steps in taken for _, function in steps}
    named = {name for name in quoted if not name.endswith(".py")} - {
        "Asked",
        "Attempt",
        "Contender",
        "Deadline",
        "Holding",
        "Lease",
    }
    assert named <= called
