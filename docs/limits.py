"""Writes the tables of the page about limits: the package's constants, with their values and docstrings.

A public constant that is a number and has a docstring is a limit, or another figure that is worth knowing.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

PACKAGE: Final = Path(__file__).parent.parent / "aioredlock_ng"

# Folders whose figures are none of a manager's: those of the commands and of test kits.
OUTSIDE: Final = ("_cli", "_demo", "_view", "contrib", "testing")

MARK: Final = "<!-- the tables of limits -->"


@dataclass(frozen=True, slots=True)
class Limit:
    """A constant of the package that is a number."""

    module: str  # its file below the package, without the suffix
    name: str
    value: float
    meaning: str

    @property
    def shown(self) -> str:
        """The value as a reader writes it."""
        return f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:g}"


def limits() -> Iterator[Limit]:
    """Yield the limits of all modules, in the order of the files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in OUTSIDE:
            continue
        module = path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")
        body = ast.parse(path.read_text()).body
        for statement, following in pairwise(body):
            name = _final(statement)
            if name is None or name.startswith("_"):
                continue
            value = getattr(importlib.import_module(f"aioredlock_ng.{module.replace('/', '.')}"), name)
            meaning = _text(following)
            if type(value) in (int, float) and (meaning or "MAX" in name):
                yield Limit(module, name, value, meaning)


def tables() -> str:
    """Return a table for each module."""
    parts = []
    for module, found in groupby(limits(), key=lambda limit: limit.module):
        rows = [f"| `{each.name}` | {each.shown} | {each.meaning} |" for each in found]
        parts.append("\n".join([f"### `{module}`", "", "| name | value | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Fill in the tables."""
    return markdown.replace(MARK, tables()) if page.file.src_uri == "reference/limits.md" else markdown


def _final(statement: ast.stmt) -> str | None:
    """Return the name of a constant, or None for another statement."""
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return None
    return statement.target.id if ast.unparse(statement.annotation).startswith("Final") else None


def _text(statement: ast.stmt) -> str:
    """Return the string below a constant, on one line, or nothing."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return ""
    return " ".join(str(statement.value.value).split()).replace("``", "`").replace("|", r"\|")
