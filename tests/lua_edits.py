"""The package's Lua scripts, broken on purpose, for all masters in memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib import resources
from typing import Final, NamedTuple
from unittest.mock import patch

from aioredlock_ng import _scripts
from aioredlock_ng.testing import _memory_lua

_FILES: Final = resources.files(_scripts)

_NUMBERS: Final = re.compile(r"^local ([A-Z_, ]+) = ([\d, ]+)$", re.MULTILINE)


class LuaEdit(NamedTuple):
    """In a file of ``_scripts``, such as ``parts/readers.lua``, another text for one that is there once."""

    file: str
    old: str
    new: str


@contextlib.contextmanager
def edited_lua(*edits: LuaEdit) -> Iterator[None]:
    """Have all masters in memory run the edited scripts, not the shipping ones, while the block runs."""
    before = {edit.file: _FILES.joinpath(edit.file).read_text() for edit in edits}
    after = dict(before)
    for edit in edits:
        count = after[edit.file].count(edit.old)
        assert count == 1, f"{edit.old!r} is {count} times in {edit.file}"
        after[edit.file] = after[edit.file].replace(edit.old, edit.new)
    replaced: dict[bytes, bytes] = {}
    for script in _scripts.ALL:
        source = script.source
        for file, text in before.items():
            source = source.replace(text.encode(), after[file].encode())
        replaced[script.source] = source
    compiled = _memory_lua.compiled
    with patch.object(_memory_lua, "compiled", lambda source: compiled(replaced.get(source, source))):
        yield


def lua_number(file: str, name: str) -> int:
    """Return a number that a file of ``_scripts`` sets by ``local NAME, OTHER = 1, 2``."""
    for names, values in _NUMBERS.findall(_FILES.joinpath(file).read_text()):
        found = dict(zip(names.split(", "), values.split(", "), strict=True))
        if name in found:
            return int(found[name])
    raise AssertionError(f"no {name} in {file}")
