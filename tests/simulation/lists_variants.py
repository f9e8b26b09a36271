"""Wrong variants of R12c, which the search must catch: the shipping code with one rule of it taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core import quorum_view
from aioredlock_ng._core.members import Membership, membership
from aioredlock_ng._core.quorum_view import QuorumView
from tests.lua_edits import LuaEdit, edited_lua

from .lists_world import Rule


def judging(change: Callable[..., Membership]) -> contextlib.AbstractContextManager[Any]:
    """Have the membership judged otherwise."""
    return patch.object(quorum_view, "membership", change)


def _forgetting(*args: Any, life_ms: int, **options: Any) -> Membership:
    return membership(*args, life_ms=min(life_ms, 600), **options)


def _for_ever(*args: Any, life_ms: int, **options: Any) -> Membership:
    return membership(*args, life_ms=10**12, **options)


def _by_identity(listed: Any, voting: Any, heard: Any, since_ms: Any, **options: Any) -> Membership:
    same = dict.fromkeys(since_ms, 0) | dict.fromkeys(voting, 0)
    return membership(listed, voting, heard, same, **options)


@contextlib.contextmanager
def _kept_for_ever() -> Iterator[None]:
    edit = LuaEdit("parts/members.lua", "tonumber(seen) + life > ms", "true")
    keep = LuaEdit("parts/members.lua", "math.ceil(life)", "10 ^ 9")
    for_ever = patch.object(quorum_view, "wait_ms", lambda _: 10**12)
    with edited_lua(edit, keep), for_ever, judging(_for_ever):
        yield


VARIANTS: Final[dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], frozenset[Rule]]]] = {
    "no membership": (lambda: judging(lambda *_, **__: Membership()), frozenset({Rule.EXCLUSION})),
    "a server is forgotten with its client": (lambda: judging(_forgetting), frozenset({Rule.EXCLUSION})),
    "a replaced server is taken for a disagreement": (_kept_for_ever, frozenset({Rule.FREE})),
    "the list that was first does not matter": (lambda: judging(_by_identity), frozenset({Rule.OLDER})),
    "clients do not tell which servers they use": (
        lambda: patch.object(QuorumView, "used", lambda _: b""),
        frozenset({Rule.EXCLUSION}),
    ),
}
"""How each is made, and which rules it may break."""
