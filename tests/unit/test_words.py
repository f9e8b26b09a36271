"""The words of the package: comments, docstrings and messages name the client, task or node that acts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "aioredlock_ng"

VAGUE: Final = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody)\b", re.IGNORECASE)


def test_sentences_name_what_acts() -> None:
    """An operator or a reader learns which one it is; "nobody" and "whoever" say nothing."""
    found = [
        f"{file.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for file in sorted(PACKAGE.rglob("*"))
        if file.suffix in (".py", ".lua", ".md")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if VAGUE.search(line)
    ]
    assert found == []
