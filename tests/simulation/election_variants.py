"""Wrong variants of R31 and R32, which the search must catch: the shipping code with one rule taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final
from unittest.mock import patch

from aioredlock_ng._core import election
from aioredlock_ng._core.election import Look, Seen
from aioredlock_ng._lock import election as elections
from tests.lua_edits import LuaEdit, edited_lua

from .election_world import Rule

Judging = Callable[[Seen, Sequence[Look], int], Seen | None]


@contextlib.contextmanager
def judging(seen: Judging) -> Iterator[None]:
    """Observers make something else of their looks."""
    with patch.object(elections, "seen", seen):
        yield


def without_memory(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Go by the last look alone."""
    return election.seen(Seen(tells=before.tells), looks, quorum)


def by_the_first(before: Seen, looks: Sequence[Look], _quorum: int) -> Seen | None:
    """Go by one node."""
    return election.seen(before, looks[:1], 1)


def by_a_majority(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Believe what Q nodes agree on."""
    agreed = [look.announced for look in looks]
    shown = [
        look if agreed.count(look.announced) >= quorum else look._replace(announced=None) for look in looks
    ]
    return election.seen(before, shown, quorum)


SHOWING_THE_OWNER: Final = LuaEdit(
    "observe.lua",
    "return {ARGV[4], votes, held,",
    """local label = string.match(redis.call('GET', KEYS[1]) or '', '^%x+:%d+%l?:(.*)$')
if label then
  local term = redis.call('GET', (string.gsub(KEYS[2], 'leader:', 'fence:', 1))) or '0'
  return {ARGV[4], votes, held, term .. ':' .. label}
end
return {ARGV[4], votes, held,""",
)
"""Tell of the owner under the lock's key, with what the counter stands at for its term."""

ANNOUNCING: Final = LuaEdit(
    "acquire.lua",
    "return {ARGV[9], 1, fence, us}",
    """local label = string.match(ARGV[1], '^%x+:%d+%l?:(.*)$')
local announcement = string.gsub(KEYS[2], 'fence:', 'leader:', 1)
call('SET', announcement, string.format('%.0f', fence) .. ':' .. label, 'PX', 600000)
return {ARGV[9], 1, fence, us}""",
)
"""Announce with the acquire what the node grants."""


@contextlib.contextmanager
def believing_owners() -> Iterator[None]:
    """Nodes show owners, and observers believe what Q of them agree on."""
    with edited_lua(SHOWING_THE_OWNER), judging(by_a_majority):
        yield


VARIANTS: Final[dict[str, tuple[Callable[[], AbstractContextManager[None]], frozenset[Rule]]]] = {
    "the owner that one node shows leads": (lambda: edited_lua(SHOWING_THE_OWNER), frozenset({Rule.WON})),
    "the owner that Q nodes show leads": (believing_owners, frozenset({Rule.WON})),
    "a term is announced with the acquire": (lambda: edited_lua(ANNOUNCING), frozenset({Rule.WON})),
    "the first answer counts": (lambda: judging(by_the_first), frozenset({Rule.NEWS})),
    "what was heard before is forgotten": (lambda: judging(without_memory), frozenset({Rule.GROWING})),
}
"""The function that makes each, and the rules that break then."""
