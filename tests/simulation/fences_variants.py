"""Wrong variants of R10, R21 and R23, which the search must catch: one rule is broken in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._lock import attempt
from tests.lua_edits import LuaEdit, edited_lua

from .checks_words import Rule


def _greatest(fences: Iterable[int], quorum: int) -> int | None:
    """Take the greatest counter of a majority for the fence, without a certificate."""
    found = list(fences)
    return max(found) if len(found) >= quorum else None


FENCES: Final = frozenset({Rule.UNIQUE, Rule.ORDER})

VARIANTS: Final[dict[str, tuple[Callable[[], AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "the greatest counter without a certificate": (
        lambda: patch.object(attempt, "certified", _greatest),
        FENCES,
    ),
    "a reader has the last writer's fence": (
        lambda: edited_lua(LuaEdit("read.lua", "even(fence + 1) - 1", "fence")),
        FENCES,
    ),
    "nothing is compared": (
        lambda: patch.object(attempt, "unchanged", lambda *_: True),
        frozenset({Rule.UNCHANGED}),
    ),
}
"""The function that makes each, and the rules that it may break."""
