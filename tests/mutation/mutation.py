"""A mutation: one rule of the protocol, broken on purpose."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .source import UnfitError, replaced

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "aioredlock_ng"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of Python code, whichever file it is in and however it is laid out.

    Code is looked for in the syntax tree: see `source.replaced`.
    """

    where: str
    """A function, class or constant by its qualified name; "module:name" where several modules define it."""
    old: str
    """An expression or statements that stand there exactly once."""
    new: str
    """The code that takes their place; an empty text deletes them."""

    def apply(self, text: str) -> str:
        """Return the module's text with the change."""
        return replaced(text, self.where.rpartition(":")[2], self.old, self.new)

    def __str__(self) -> str:
        return self.where


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One change of a file that is no Python, such as a script; what `old` says stands there exactly once.

    One line for one is any part of a line.  All else are whole lines, at whatever indentation.
    """

    file: str
    """Under the package."""
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the file's text with the change."""
        olds, news = self.old.splitlines(), self.new.splitlines()
        part = len(olds) == len(news) == 1
        lines = "".join(rf"\1{re.escape(line)}\n" if line else r"\n" for line in olds)
        pattern = re.escape(self.old) if part else lines.replace(r"\1", "^( *)", 1)
        found = list(re.finditer(pattern, text, re.MULTILINE))
        if len(found) != 1:
            raise UnfitError(f"it stands there {len(found)} times, not once")
        begin, end = found[0].span()
        new = self.new if part else textwrap.indent("".join(f"{line}\n" for line in news), found[0][1])
        return text[:begin] + new + text[end:]

    def __str__(self) -> str:
        return self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule, how it is broken, and which test notices.

    Masters in memory run the package's Lua scripts: no server is needed to notice that one is broken.
    """

    rule: str
    name: str
    edits: tuple[Edit | TextEdit, ...]
    test: str
    """Pytest's name of a test that fails then, under ``tests/``: one that takes little time."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"
