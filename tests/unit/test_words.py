"""The words of the package: plain English, the field's terms, and the client, task or node that acts."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(__file__).parents[2] / "aioredlock_ng"

VAGUE: Final = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody)\b", re.IGNORECASE)

DIALECT: Final = re.compile(r"\b(told|alike|so many|com(e|es|ing) of|came of|anew|as ever)\b", re.IGNORECASE)
"""Better: notified, reported, said; the same; the number of; the result of; again; as before."""

QUESTION: Final = re.compile(r"\s*(What|How|Whom|Who|Whose)\b")

TEXTS: Final = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def _lines(*suffixes: str) -> Iterator[tuple[str, str]]:
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in suffixes:
            for number, line in enumerate(file.read_text().splitlines(), start=1):
                yield f"{file.relative_to(PACKAGE)}:{number}: {line.strip()}", line


def _texts() -> Iterator[tuple[str, str]]:
    """Comments, docstrings and messages of the modules: all but their names."""
    for file in sorted(PACKAGE.rglob("*.py")):
        with file.open("rb") as source:
            for token in tokenize.tokenize(source.readline):
                if token.type in TEXTS:
                    yield f"{file.relative_to(PACKAGE)}:{token.start[0]}: {token.string}", token.string


def _docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of the modules; those behind a constant or a field, too."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = str(node.value.value)
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}: {text}", text


def test_sentences_name_what_acts() -> None:
    """An operator or a reader learns which one it is; "nobody" and "whoever" say nothing."""
    assert [place for place, line in _lines(".py", ".lua", ".md") if VAGUE.search(line)] == []


def test_texts_use_the_words_of_the_field() -> None:
    """Readers bring these words along, and find one thing by one word."""
    assert [place for place, text in (*_lines(".lua", ".md"), *_texts()) if DIALECT.search(text)] == []


def test_docstrings_say_the_thing_itself() -> None:
    """The response to a request whose lock is taken; not: how such a request is answered."""
    assert [place for place, text in _docstrings() if QUESTION.match(text)] == []
