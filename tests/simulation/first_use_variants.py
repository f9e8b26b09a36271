"""Wrong variants of R12b, which the search must catch: a proof with one condition left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from tests.lua_edits import LuaEdit, edited_lua

from .first_use_world import Rule

_MEMORY: Final = "parts/memory.lua"


def _edited(file: str, old: str, new: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    return lambda: edited_lua(LuaEdit(file, old, new))


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "a server is as old as time": (
        _edited(_MEMORY, "return ms - math.max(0, up - 2) * 1000", "return 0"),
        frozenset({Rule.EXCLUSION}),
    ),
    "a flush leaves no trace": (_edited(_MEMORY, "flushall = true, ", ""), frozenset({Rule.EXCLUSION})),
    "the age of the quorum does not matter": (
        _edited("greet.lua", "since and since <= tonumber(string.match(claim, '^%d+'))", "since"),
        frozenset({Rule.EXCLUSION}),
    ),
    "what a client has seen there does not matter": (
        _edited("greet.lua", "ARGV[8] ~= me and ", ""),
        frozenset({Rule.EXCLUSION}),
    ),
    "no proof at all": (
        _edited("greet.lua", "ARGV[8] ~= me and remembers_since(ARGV[6]) or ms", "ms"),
        frozenset({Rule.AT_ONCE}),
    ),
}
"""How each is made, and which rules it may break."""
