"""What the simulator records is a behaviour of the model of the mutex; what broken clients do is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng._acquire.attempt import Attempt
from aioredlock_ng._core import quarantine
from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._hold import holding
from aioredlock_ng._node import base
from aioredlock_ng._node.redis_node import RedisNode
from aioredlock_ng._round import outbox
from aioredlock_ng._settings import options
from tests.lua_edits import LuaEdit, edited_lua
from tests.model.recorder import record
from tests.model.tlc import missing
from tests.model.traces import Trace, plan_of, rejected, stuck, trace, traces
from tests.servers import required

SEEDS: Final = 200
PARTS: Final = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for TLC; skips where it cannot run, and fails if ``REDLOCK_REQUIRE`` names ``tlc``."""
    if why := missing():
        give_up = pytest.fail if "tlc" in required() else pytest.skip
        give_up(why)
    return tmp_path


def accepted(some: list[Trace], folder: Path) -> None:
    """Expect TLC to read all of these traces; else show where it is stuck."""
    assert "\n".join(stuck(one, folder) for one in rejected(some, folder)) == ""


def test_a_run_is_a_behaviour_of_the_model(folder: Path) -> None:
    """One run of three nodes: the whole way, at little cost."""
    accepted(list(traces([6])), folder)


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_runs_are_behaviours_of_the_model(part: int, folder: Path) -> None:
    """Under all faults that the model knows."""
    some = list(traces(range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)))
    assert sum(len(one.lines) for one in some) > 200 * len(some)
    accepted(some, folder)


Broken = Callable[[pytest.MonkeyPatch], None] | tuple[LuaEdit, ...]


def _too_long(patch: pytest.MonkeyPatch) -> None:
    """The ttl counts from some 1/50 of it later, as from the answers of nodes that are far away."""
    for module in (options, holding):
        patch.setattr(module, "valid_until", lambda asked_at, ttl: asked_at + 1.02 * ttl)


def _undo_where_granted(patch: pytest.MonkeyPatch) -> None:
    undo = Attempt.undo

    def undone(self: Attempt, *args: Any) -> Any:
        answers = enumerate(self.round.answers)
        others = [node for node, answer in answers if answer is None or answer.vote is not Vote.GRANTED]
        self.round.unsent = tuple(others)
        return undo(self, *args)

    patch.setattr(Attempt, "undo", undone)


def _half_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "majority", lambda size: max(1, size // 2))


def _no_waiting(patch: pytest.MonkeyPatch) -> None:
    """Quarantines are over at once to all clients."""
    known = quarantine.parse_any

    def ready(value: bytes) -> quarantine.Incarnation | None:
        found = known(value)
        return None if found is None else replace(found, ready_ms=0)

    patch.setattr(quarantine, "parse_any", ready)


def _nothing_is_repeated(patch: pytest.MonkeyPatch) -> None:
    def forget(self: RedisNode, link: Any, reason: str) -> None:
        for _, receiver, index in link.pipe.abandon():
            receiver.on_reply(index, Silence(reason))

    patch.setattr(RedisNode, "_fail_all", forget)


BROKEN: Final[dict[str, tuple[int, Broken]]] = {
    "R1: half of the nodes are enough": (1, _half_is_enough),
    "R3: validity beyond the ttl": (0, _too_long),
    "R5: undone only where it was granted": (1, _undo_where_granted),
    "R5: a release that is lost is not sent again": (0, _nothing_is_repeated),
    "R6: a release deletes whatever is there": (
        1,
        (
            LuaEdit("release.lua", "elseif holder == ARGV[1] or", "elseif holder or"),
            LuaEdit("release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),
        ),
    ),
    "R8: an extension creates the key": (
        0,
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
    "R12: a node in quarantine votes": (0, _no_waiting),
}
"""How clients or scripts are broken, and the first of the seeds that are tried."""

TRIED: Final = 24
"""Seeds in one of which each of these is found."""


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of leases that broken code has not released
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_rejected(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that are broken on purpose show in the trace."""
    first, breaking = BROKEN[name]
    if callable(breaking):
        breaking(monkeypatch)
    with edited_lua(*(() if callable(breaking) else breaking)):
        some = list(traces(range(first, first + TRIED)))
    assert rejected(some, folder)
