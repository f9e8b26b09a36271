"""Wrong variants of R12c, which the search must catch: the shipping code with one rule of it taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core import quorum_view
from aioredlock_ng._core.members import Member
from aioredlock_ng._core.quorum_view import QuorumView
from tests.lua_edits import LuaEdit, edited_lua

from .lists_world import Rule


def _lasting(seconds: float) -> contextlib.AbstractContextManager[Any]:
    """Have clients remember for so long which servers were used."""

    def waits_for(view: QuorumView, other: Member) -> float:
        return max(0.0, other.answered_at + seconds - view._now)

    return patch.object(QuorumView, "waits_for", waits_for)


def _judging(rule: str, result: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
    """Have another rule for which servers may vote, or which are another list's."""
    return patch.object(quorum_view, rule, result)


@contextlib.contextmanager
def _kept_for_ever() -> Iterator[None]:
    edit = LuaEdit("parts/members.lua", "(used(line) and life or BRIEF) > ms", "10 ^ 12 > ms")
    keep = LuaEdit("parts/members.lua", "math.ceil(math.max(life, BRIEF))", "10 ^ 9")
    with edited_lua(edit, keep), _lasting(10.0**9):
        yield


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "no server is held back": (
        lambda: _judging("late", lambda *_, **__: set[bytes]()),
        frozenset({Rule.EXCLUSION}),
    ),
    "no list is another one": (lambda: _judging("strangers", lambda *_, **__: []), frozenset({Rule.NOTICED})),
    "a server is forgotten with its client": (lambda: _lasting(0.6), frozenset({Rule.EXCLUSION})),
    "a replaced server is taken for a disagreement": (_kept_for_ever, frozenset({Rule.FREE})),
    "clients do not tell which servers they use": (
        lambda: patch.object(QuorumView, "told", lambda *_: (b"", b"0")),
        frozenset({Rule.EXCLUSION}),
    ),
}
"""The function that makes each, and the rules that it may break."""
