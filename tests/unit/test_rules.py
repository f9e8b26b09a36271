"""``_core/RULES.md``: each rule is cited by code and shown by tests, and each citation has a rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.references import TESTS, check_tests_in, rules

ROOT: Final = TESTS.parent
PACKAGE: Final = ROOT / "aioredlock_ng"

_CITATION: Final = re.compile(r"(?<![\w%\\])[AR][1-9]\d?[a-z]?\b")


def files() -> list[Path]:
    """Return whatever may cite a rule."""
    folders = (PACKAGE, TESTS, ROOT / "benchmarks", ROOT / "examples", ROOT / "docs")
    found = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".lua", ".md")
    ]
    return [*found, ROOT / "README.md", ROOT / "CHANGELOG.md"]


def cited(path: Path) -> set[str]:
    """Return the numbers that a file cites."""
    return set(_CITATION.findall(path.read_text()))


def test_every_citation_has_its_rule() -> None:
    """A number that no page explains helps no reader."""
    known = set(rules())
    unknown = {
        (path.relative_to(ROOT).as_posix(), number) for path in files() for number in cited(path) - known
    }
    assert unknown == set()


def test_every_rule_is_cited_by_code() -> None:
    """A rule without code is a wish."""
    code = (cited(path) for path in PACKAGE.rglob("*") if path.suffix in (".py", ".lua"))
    assert rules().keys() - set().union(*code) == set()


def test_every_rule_is_shown_by_tests() -> None:
    """Below each rule stand tests, which are there."""
    for number, text in rules().items():
        rule, _, shown = text.partition("\nShown by: ")
        assert rule.strip(), number
        found = check_tests_in(shown)
        assert found, number
        assert found == shown.count("`") // 2, f"{number}: a reference that is none"
