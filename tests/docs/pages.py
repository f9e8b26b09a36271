"""The pages that readers see, and the fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.environments.interpreters import ROOT

README: Final = ROOT / "README.md"
DOCS: Final = ROOT / "docs"

PAGES: Final = (README, *sorted(DOCS.rglob("*.md")))  # pages for users, whose blocks are run

# Of these, the pages whose blocks need libraries of their own: tests/recipes runs them.
RECIPES: Final = tuple(sorted((DOCS / "recipes").glob("*.md")))

# All pages, whose links are followed.
LINKED: Final = (
    *PAGES,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / ".github").glob("*.md")),
    ROOT / "aioredlock_ng" / "_core" / "RULES.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "tests" / "README.md",
)

_BLOCK: Final = re.compile(
    r"^```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<source>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    page: str  # where it stands, below the project's root
    line: int  # the number of its first line
    language: str
    info: str  # what follows the language, such as a title
    source: str

    @property
    def is_tests(self) -> bool:
        """Whether it is a file of tests."""
        return (
            self.language == "python"
            and re.search(r"^(async )?def test_", self.source, re.MULTILINE) is not None
        )


def name_of(page: Path) -> str:
    """Return a page's path below the project's root."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks, in order."""
    return blocks_in(page.read_text(), name_of(page))


def blocks_in(text: str, page: str) -> list[Block]:
    """Return the blocks of a text that stands on a page."""
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("source")) + 1,
            language=found["language"],
            info=found["info"].strip(),
            source=found["source"],
        )
        for found in _BLOCK.finditer(text)
    ]


def without_blocks(text: str) -> str:
    """Return a page without its blocks."""
    return _BLOCK.sub("", text)


BLOCKS: Final = tuple(block for page in PAGES for block in blocks_of(page))


def command_lines() -> list[str]:
    """Return every line of every block of commands, without its comment and without empty ones."""
    lines = (line for block in BLOCKS if block.language == "sh" for line in block.source.splitlines())
    return [line for line in lines if line.strip()]
