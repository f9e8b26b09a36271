"""All mutations, from the files of ``edits/``: what stands there is data, in a format like diff's.

    R8: an extension creates a key that is gone
    test unit/test_extension.py::test_a_refusal_by_a_majority_loses_at_once
    in Attempt.extend
    - code that stands there once
    + what takes its place, if anything does

Lines may be several, and so may places: a place is a script of the package, or what an `Edit` calls one.  An
empty line ends a mutation, and `#` begins a remark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .mutation import Edit, Mutation, TextEdit

_PLACE: Final = re.compile(r"in (.+)\n((?:-.*\n)+)((?:\+.*\n)*)")
_MUTATION: Final = re.compile(
    rf"(?P<rule>\w+): (?P<name>.+)\ntest (?P<test>.+)\n(?P<places>(?:{_PLACE.pattern})+)"
)


def read(text: str) -> Iterator[Mutation]:
    """Return the mutations of one file."""
    for block in text.strip().split("\n\n"):
        if not block.startswith("#"):
            found = _MUTATION.fullmatch(block + "\n")
            assert found is not None, f"this is no mutation:\n{block}"
            edits = [_edit(*place.groups()) for place in _PLACE.finditer(found["places"])]
            yield Mutation(rule=found["rule"], name=found["name"], edits=tuple(edits), test=found["test"])


def _edit(place: str, *signed: str) -> Edit | TextEdit:
    old, new = ("\n".join(line[2:] for line in lines.splitlines()) for lines in signed)
    return TextEdit(place, old, new) if place.endswith(".lua") else Edit(place, old, new)


_ALL: Final = [
    each for path in sorted(Path(__file__).parent.glob("edits/*.txt")) for each in read(path.read_text())
]

MUTATIONS: Final = tuple(sorted(_ALL, key=lambda each: int(re.sub(r"\D", "", each.rule) or 0)))
"""In the order of the rules."""
