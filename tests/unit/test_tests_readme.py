"""The table of faults in ``tests/README.md`` names tests that exist, for every fault of the catalogue."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
README: Final = (TESTS / "README.md").read_text()

ROWS: Final = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in README.splitlines()
    if re.match(r"\| [PNSCK]\d", line)
]

CATALOGUE: Final = {
    *(f"P{number}" for number in range(1, 7)),
    *(f"N{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13)),
    *(f"S{number}" for number in range(1, 13)),
    *(f"C{number}" for number in range(1, 5)),
    *(f"K{number}" for number in range(1, 9)),
}

_REFERENCE: Final = re.compile(r"`([\w/]+\.py)?(?:::(\w+))?(?:\[[^`]*\])?`")


def test_every_fault_has_a_row() -> None:
    """Nothing that can go wrong is left out, and each row has all its cells."""
    assert {name for row in ROWS for name in row[0].split("/")} >= CATALOGUE
    assert all(len(row) == 5 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_tests_of_a_row_exist(row: tuple[str, ...]) -> None:
    """Each is a file of this folder, or a function in it; a name alone is in the file before it.

    Which of a function's cases are meant stands in brackets, and is not looked at.
    """
    found, file = 0, ""
    for reference in _REFERENCE.finditer(row[-1]):
        file = reference[1] or file
        path = TESTS / file
        assert path.is_file(), file
        if reference[2]:
            assert re.search(rf"def {reference[2]}\(", path.read_text()), f"{file}::{reference[2]}"
        found += 1
    assert found, row[0]
    assert found >= row[-1].count("`") // 2 - 1, "a reference that is none"
