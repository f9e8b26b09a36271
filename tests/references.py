"""References of pages: the rules of ``_core/RULES.md``, and the tests that show them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
RULES: Final = TESTS.parent / "aioredlock_ng" / "_core" / "RULES.md"

_HEADING: Final = re.compile(r"^### ([AR]\d+[a-z]?) ", re.MULTILINE)
_REFERENCE: Final = re.compile(r"`([\w/]+\.py)?(?:::(\w+))?(?:\[[^`]*\])?`")


def rules() -> dict[str, str]:
    """Return the text of each rule, by its number."""
    parts = _HEADING.split(RULES.read_text())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def is_defined(file: str, function: str) -> bool:
    """Return whether a file below ``tests/`` has a function of that name."""
    text = (TESTS / file).read_text()
    return re.search(rf"^(async )?def {function}\(", text, re.MULTILINE) is not None


def check_tests_in(text: str) -> int:
    """Fail unless the tests that a text names exist; return how many it names.

    Each is a file of this folder, or a function in it; a name alone is in the file before it.  Which of a
    function's cases are meant stands in brackets, and is not looked at.
    """
    found, file = 0, ""
    for reference in _REFERENCE.finditer(text):
        file = reference[1] or file
        assert (TESTS / file).is_file(), file
        assert reference[2] is None or is_defined(file, reference[2]), f"{file}::{reference[2]}"
        found += 1
    return found
