"""The table of faults in ``tests/README.md`` names tests that exist, for every fault of the catalogue."""

from __future__ import annotations

import re
from typing import Final

from tests.references import TESTS, check_tests_in

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


def test_every_fault_has_a_row() -> None:
    """Nothing that can go wrong is left out, and each row has all its cells."""
    assert {name for row in ROWS for name in row[0].split("/")} >= CATALOGUE
    assert all(len(row) == 5 and all(row) for row in ROWS)


def test_the_tests_of_a_row_exist() -> None:
    """The last cell names at least one."""
    for row in ROWS:
        found = check_tests_in(row[-1])
        assert found, row[0]
        assert found >= row[-1].count("`") // 2 - 1, f"{row[0]}: a reference that is none"
