"""Wrong variants of rules, which the searches must catch: the shipping code with one rule taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Final
from unittest.mock import patch

from aioredlock_ng._core import election, quorum_view
from aioredlock_ng._core.election import Look, Seen
from aioredlock_ng._core.members import Member
from aioredlock_ng._core.quarantine import BY_INIT, Claim
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._lock import attempt
from aioredlock_ng._lock import election as elections
from tests.lua_edits import LuaEdit, edited_lua

from . import checks_words, election_world, first_use_world, lists_world, stray_world

Variants = dict[str, tuple[Callable[[], AbstractContextManager[Any]], set[StrEnum]]]
"""The function that makes each, and the rules that it may break."""


def _edited(*edits: LuaEdit) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: edited_lua(*edits)


def _instead(owner: Any, name: str, other: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(owner, name, other)


# -- elections (R31, R32) ----------------------------------------------------------------------------


def _without_memory(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Go by the last look alone."""
    return election.seen(Seen(tells=before.tells), looks, quorum)


def _by_the_first(before: Seen, looks: Sequence[Look], _quorum: int) -> Seen | None:
    """Go by one node."""
    return election.seen(before, looks[:1], 1)


_ANNOUNCING: Final = LuaEdit(
    "acquire.lua",
    "return {ARGV[8], 1, fence, us}",
    """local label = string.match(ARGV[1], '^%x+:%d+%l?:(.*)$')
local announcement = string.gsub(KEYS[2], 'fence:', 'leader:', 1)
call('SET', announcement, string.format('%.0f', fence) .. ':' .. label, 'PX', 600000)
return {ARGV[8], 1, fence, us}""",
)
"""Announce with the acquire what the node grants."""

ELECTION: Final[Variants] = {
    "a term is announced with the acquire": (_edited(_ANNOUNCING), {election_world.Rule.WON}),
    "the first answer counts": (_instead(elections, "seen", _by_the_first), {election_world.Rule.NEWS}),
    "what was heard before is forgotten": (
        _instead(elections, "seen", _without_memory),
        {election_world.Rule.GROWING},
    ),
}


# -- fences (R10, R21, R23) --------------------------------------------------------------------------


def _greatest(fences: Iterable[int], quorum: int) -> int | None:
    """Take the greatest counter of a majority for the fence, without a certificate."""
    found = list(fences)
    return max(found) if len(found) >= quorum else None


_OF_FENCES: Final[set[StrEnum]] = {checks_words.Rule.UNIQUE, checks_words.Rule.ORDER}

FENCES: Final[Variants] = {
    "the greatest counter without a certificate": (_instead(attempt, "certified", _greatest), _OF_FENCES),
    "a reader has the last writer's fence": (
        _edited(LuaEdit("read.lua", "even(fence + 1) - 1", "fence")),
        _OF_FENCES,
    ),
    "nothing is compared": (
        _instead(attempt, "unchanged", lambda *_: True),
        {checks_words.Rule.UNCHANGED},
    ),
}


# -- strays (R12a) -----------------------------------------------------------------------------------


def _lose(view: QuorumView, node: object, _now: float) -> None:
    if view._views.pop(node, None) is not None:
        view._reassess()


def _outranks(rule: Callable[[Claim, Claim], bool]) -> Callable[[], AbstractContextManager[Any]]:
    """Have another rule for which quorum gives way."""
    return _instead(Claim, "outranks", rule)


STRAY: Final[Variants] = {
    "forgetting what a node out of reach has said": (
        _instead(QuorumView, "lose", _lose),
        {stray_world.Rule.EXCLUSION},
    ),
    "taking back from an init": (
        _outranks(lambda self, other: self.born_ms < other.born_ms),
        {stray_world.Rule.STATEMENT},
    ),
    "the younger quorum wins": (
        _outranks(lambda self, other: other.how != BY_INIT and self.born_ms > other.born_ms),
        {stray_world.Rule.RETURNED, stray_world.Rule.REFUSED},
    ),
}


# -- first uses (R12b) -------------------------------------------------------------------------------

_MEMORY: Final = "parts/memory.lua"

FIRST_USE: Final[Variants] = {
    "a flush leaves no trace": (
        _edited(LuaEdit(_MEMORY, "flushall = true, ", "")),
        {first_use_world.Rule.EXCLUSION},
    ),
    # A node is dated back by its own age, whatever the other nodes say, and whenever it has no record.
    "each node by itself": (
        _instead(QuorumView, "dated_back_ms", lambda _view, _node: 10**12),
        {first_use_world.Rule.EXCLUSION},
    ),
    "no proof at all": (
        _edited(LuaEdit("greet.lua", "math.min(tonumber(ARGV[8]), (remembers_for()))", "0")),
        {first_use_world.Rule.AT_ONCE},
    ),
}


# -- lists (R12c) ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _kept_for_ever() -> Iterator[None]:
    """Clients and nodes remember for ever which servers were used."""

    def waits_for(view: QuorumView, other: Member) -> float:
        return max(0.0, other.answered_at + 10.0**9 - view._now)

    edit = LuaEdit("parts/members.lua", "(used(line) and life or BRIEF) > ms", "10 ^ 12 > ms")
    keep = LuaEdit("parts/members.lua", "math.ceil(math.max(life, BRIEF))", "10 ^ 9")
    with edited_lua(edit, keep), patch.object(QuorumView, "waits_for", waits_for):
        yield


LISTS: Final[Variants] = {
    "no server is held back": (
        _instead(quorum_view, "late", lambda *_, **__: set[bytes]()),
        {lists_world.Rule.EXCLUSION},
    ),
    "no list is another one": (
        _instead(quorum_view, "strangers", lambda *_, **__: []),
        {lists_world.Rule.NOTICED},
    ),
    "a replaced server is taken for a disagreement": (_kept_for_ever, {lists_world.Rule.FREE}),
    "clients do not tell which servers they use": (
        _instead(QuorumView, "told", lambda *_: (b"", b"0")),
        {lists_world.Rule.EXCLUSION},
    ),
}
