"""The page about limits is made of the code: each figure of a manager says what it bounds."""

from __future__ import annotations

import runpy
from typing import Final

from tests.docs.pages import DOCS

MADE: Final = runpy.run_path(str(DOCS / "limits.py"))


def test_every_limit_says_what_it_bounds() -> None:
    """The docstring of a constant becomes its row; a maximum must have one."""
    found = list(MADE["limits"]())
    assert len(found) > 100
    assert [f"{each.module}:{each.name}" for each in found if not each.meaning] == []


def test_the_page_has_the_tables() -> None:
    """The mark that they replace is on the page, and a row has the name, the value and the meaning."""
    assert (DOCS / "reference" / "limits.md").read_text().count(MADE["MARK"]) == 1
    assert "| `MAX_DEPTH` | 100 | " in MADE["tables"]()
