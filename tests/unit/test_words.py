"""The words of package and tests: plain English, the field's terms, the client, task or node that acts."""

from __future__ import annotations

import ast
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT: Final = Path(__file__).parents[2]
PACKAGE: Final = PROJECT / "aioredlock_ng"

CHECKED: Final = sorted(
    file for folder in (PACKAGE, PROJECT / "tests") for file in folder.rglob("*") if file != Path(__file__)
)

VAGUE: Final = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody)\b", re.IGNORECASE)

DIALECT: Final = re.compile(r"\b(told|alike|so many|com(e|es|ing) of|came of|anew|as ever)\b", re.IGNORECASE)
"""Better: notified, reported, said; the same; the number of; the result of; again; as before."""

QUESTION: Final = re.compile(r"\s*(What|How|Whom|Who|Whose)\b")

TEXTS: Final = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def _lines(suffix: str) -> Iterator[tuple[str, str]]:
    for file in CHECKED:
        if file.suffix == suffix:
            for number, line in enumerate(file.read_text().splitlines(), start=1):
                yield f"{file.relative_to(PROJECT)}:{number}: {line.strip()}", line


@cache
def _texts() -> list[tuple[str, str]]:
    """Scripts, pages, titles of mutations; comments, docstrings and messages of modules: all but names."""
    texts = [*_lines(".lua"), *_lines(".md")]
    texts += [(place, line) for place, line in _lines(".txt") if re.match(r"\w+: ", line)]
    for file in CHECKED:
        if file.suffix == ".py":
            with file.open("rb") as source:
                texts += [
                    (f"{file.relative_to(PROJECT)}:{token.start[0]}: {token.string}", token.string)
                    for token in tokenize.tokenize(source.readline)
                    if token.type in TEXTS and " " in token.string
                ]
    return texts


def _docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of the modules; those behind a constant or a field, too."""
    for file in CHECKED:
        if file.suffix == ".py":
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    text = str(node.value.value)
                    yield f"{file.relative_to(PROJECT)}:{node.lineno}: {text}", text


def test_sentences_name_what_acts() -> None:
    """An operator or a reader learns which one it is; "nobody" and "whoever" say nothing."""
    assert [place for place, text in _texts() if VAGUE.search(text)] == []


def test_texts_use_the_words_of_the_field() -> None:
    """Readers bring these words along, and find one thing by one word."""
    assert [place for place, text in _texts() if DIALECT.search(text)] == []


def test_docstrings_say_the_thing_itself() -> None:
    """The response to a request whose lock is taken; not: how such a request is answered."""
    assert [place for place, text in _docstrings() if QUESTION.match(text)] == []
