"""Wrong variants of R12c, which the search must catch: the shipping code with one rule of it taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core import quorum_view
from aioredlock_ng._core.members import Member, Membership, membership
from aioredlock_ng._core.quorum_view import QuorumView
from tests.lua_edits import LuaEdit, edited_lua

from .lists_world import Rule


def judging(change: Callable[..., Membership]) -> contextlib.AbstractContextManager[Any]:
    """Have the membership judged otherwise."""
    return patch.object(quorum_view, "membership", change)


def _lasting(seconds: float) -> contextlib.AbstractContextManager[Any]:
    """Have clients remember for so long which servers were used."""
    return patch.object(QuorumView, "_left", lambda self, _, used_at: max(0.0, used_at + seconds - self._now))


def _by_identity(listed: Any, voting: Any, told: Any, successors: Any, **options: Any) -> Membership:
    same = [*(member._replace(since_ms=0) for member in told), *(Member(one, 0, 0, b"") for one in voting)]
    return membership(listed, voting, same, (), **options)


@contextlib.contextmanager
def _kept_for_ever() -> Iterator[None]:
    edit = LuaEdit("parts/members.lua", "seen + life > ms", "true")
    keep = LuaEdit("parts/members.lua", "math.ceil(life)", "10 ^ 9")
    with edited_lua(edit, keep), _lasting(10.0**9):
        yield


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "no membership": (lambda: judging(lambda *_, **__: Membership()), frozenset({Rule.EXCLUSION})),
    "a server is forgotten with its client": (lambda: _lasting(0.6), frozenset({Rule.EXCLUSION})),
    "a replaced server is taken for a disagreement": (_kept_for_ever, frozenset({Rule.FREE})),
    "the list that was first does not matter": (lambda: judging(_by_identity), frozenset({Rule.OLDER})),
    "clients do not tell which servers they use": (
        lambda: patch.object(QuorumView, "told", lambda *_: (b"", b"0")),
        frozenset({Rule.EXCLUSION}),
    ),
}
"""How each is made, and which rules it may break."""
