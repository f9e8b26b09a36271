"""Wrong variants of R12b, which the search must catch: a proof with one condition left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core.quorum_view import QuorumView
from tests.lua_edits import LuaEdit, edited_lua

from .first_use_world import Rule

_MEMORY: Final = "parts/memory.lua"


def _edited(file: str, old: str, new: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    return lambda: edited_lua(LuaEdit(file, old, new))


@contextlib.contextmanager
def _each_by_itself() -> Iterator[None]:
    """A node is dated back by its own age, whatever the other nodes say, and whenever it has no record."""
    with patch.object(QuorumView, "dated_back_ms", lambda _view, _node: 10**12):
        yield


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "a server is as old as time": (
        _edited(_MEMORY, "return math.max(0, up - 2) * 1000", "return 1e9"),
        frozenset({Rule.EXCLUSION}),
    ),
    "a flush leaves no trace": (_edited(_MEMORY, "flushall = true, ", ""), frozenset({Rule.EXCLUSION})),
    "each node by itself": (_each_by_itself, frozenset({Rule.EXCLUSION})),
    "no proof at all": (
        _edited("greet.lua", "math.min(tonumber(ARGV[8]), (remembers_for()))", "0"),
        frozenset({Rule.AT_ONCE}),
    ),
}
"""The function that makes each, and the rules that it may break."""
