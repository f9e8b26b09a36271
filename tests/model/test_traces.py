"""Records of the simulator are behaviours of the model of the mutex; those of broken clients are none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng._core import quarantine, quorum, validity
from aioredlock_ng._core.command import Silence
from aioredlock_ng._lock.attempt import Attempt
from aioredlock_ng._node.ledger import PendingRelease
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng._round import outbox
from tests.lua_edits import LuaEdit, edited_lua
from tests.model.monitors import contend
from tests.model.traces import WORDS, Trace, rejected, stuck, trace, traces

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


def _too_long(patch: pytest.MonkeyPatch) -> None:
    """A validity as long as the ttl, and counted from later than the first byte."""
    patch.setattr(validity, "drift", lambda ttl: -0.01 * ttl)


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


def _no_waiting(patch: pytest.MonkeyPatch) -> None:
    """Quarantines are over at once to all clients."""
    known = quarantine.parse_any

    def ready(value: bytes) -> quarantine.Incarnation | None:
        found = known(value)
        return None if found is None else replace(found, ready_ms=0)

    patch.setattr(quarantine, "parse_any", ready)


def _nothing_is_repeated(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Node, link: Any, reason: str) -> None:
        for _, receiver, index in link.pipe.abandon():
            receiver.on_reply(index, Silence(reason))

    patch.setattr(Node, "_fail_all", forget)


def _gives_up(patch: pytest.MonkeyPatch) -> None:
    """Pending releases are given up at the next check, also those of keys that are alive."""
    create = PendingRelease.__init__

    def at_once(self: PendingRelease, ledger: Any, command: Any, until: float, *, unresolved: bool) -> None:
        create(self, ledger, command, 0.0 * until, unresolved=unresolved)

    patch.setattr(PendingRelease, "__init__", at_once)


def _one_grant_extends(patch: pytest.MonkeyPatch) -> None:
    verdict = quorum.extension_verdict
    broken = lambda tally: quorum.Extension.EXTENDED if tally.granted else verdict(tally)  # noqa: E731
    patch.setattr("aioredlock_ng._lock.holding.extension_verdict", broken)


BROKEN: Final[dict[str, tuple[int, str, Broken]]] = {
    "R1: half of the nodes are enough": (1, "win", _half_is_enough),
    "R3: validity beyond the ttl": (2, "until", _too_long),
    "R5: undone only where it was granted": (10, "done", _undo_where_granted),
    "R5: a release that is lost is not sent again": (17, "done", _nothing_is_repeated),
    "R5: a release that is lost is given up too early": (17, "forget", _gives_up),
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
    "R8: one grant extends": (5, "win", _one_grant_extends),
    "R12: a node in quarantine votes": (2, "win", _no_waiting),
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


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_real_servers_are_as_the_model_says(folder: Path) -> None:
    """Three clients contend over three servers, of which one forgets all: as their monitors saw it."""
    one = trace("real servers", await contend(seconds=3.0))
    assert {line[0] for line in one.lines} > {
        WORDS[word] for word in ("win", "extend", "lose", "repair", "vouch")
    }
    accepted([one], folder)
