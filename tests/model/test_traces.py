"""Records of the simulator are behaviours of the model of the mutex; those of broken clients are none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng._core import quorum
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._round import outbox
from tests.lua_edits import LuaEdit, edited_lua
from tests.model.traces import WORDS, Trace, rejected, stuck, traces

SEEDS: Final = 200
PARTS: Final = 8


def accepted(some: list[Trace], folder: Path) -> None:
    """Expect TLC to read all of these traces; else show where it is stuck."""
    assert "\n".join(stuck(one, folder) for one in rejected(some, folder)) == ""


def test_a_run_is_a_behaviour_of_the_model(folder: Path) -> None:
    """Two runs of three nodes: the whole way, at little cost.

    In the second one a key ends on a node that refuses all commands, before its clock changes its rate.
    """
    accepted(list(traces([6, 102295])), folder)


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_runs_are_behaviours_of_the_model(part: int, folder: Path) -> None:
    """Under all faults that the model knows."""
    some = list(traces(range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)))
    assert sum(len(one.lines) for one in some) > 200 * len(some)
    accepted(some, folder)


Broken = Callable[[pytest.MonkeyPatch], None] | tuple[LuaEdit, ...]


def _undo_where_granted(patch: pytest.MonkeyPatch) -> None:
    undo = Attempt.undo

    def undone(self: Attempt, *args: Any) -> Any:
        answers = enumerate(self.round.answers)
        others = [
            node for node, answer in answers if answer is None or answer.vote is not quorum.Vote.GRANTED
        ]
        self.round.unsent = tuple(others)
        return undo(self, *args)

    patch.setattr(Attempt, "undo", undone)


def _half_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "majority", lambda size: max(1, size // 2))


BROKEN: Final[dict[str, tuple[int, str, Broken]]] = {
    "R1: half of the nodes are enough": (1, "win", _half_is_enough),
    "R5: undone only where it was granted": (10, "done", _undo_where_granted),
    "R6: a release deletes whatever is there": (
        2,
        "released",
        (
            LuaEdit("release.lua", "elseif holder == ARGV[1] or", "elseif holder or"),
            LuaEdit("release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),
        ),
    ),
    "R8: an extension creates the key": (
        15,
        "extended",
        (
            LuaEdit(
                "extend.lua",
                "missing, tills[i] = missing or found == 0, till",
                "if found == 0 then restore(KEYS[i], owner, ttl, ms, own) end tills[i] = till",
            ),
            LuaEdit(
                "extend_many.lua",
                "elseif not holder then",
                "elseif not holder then call('SET', lock, ARGV[i + 2], 'PX', ARGV[1])",
            ),
        ),
    ),
}
"""A seed in which it is found, the word of the line that is rejected, and what is broken how."""


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of leases that broken code has not released
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_rejected(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is broken on purpose shows in the trace, in a line that it is about."""
    seed, word, breaking = BROKEN[name]
    if callable(breaking):
        breaking(monkeypatch)
    with edited_lua(*(() if callable(breaking) else breaking)):
        some = list(traces([seed]))
    (one,) = rejected(some, folder)
    assert re.search(rf"^> \d+ {WORDS[word]}", stuck(one, folder), re.MULTILINE)
