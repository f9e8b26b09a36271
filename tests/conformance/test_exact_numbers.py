"""What the scripts compute of fences is exact to the last digit, until 2248 (R10, R11)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.fencing import MAX_BLOCK, RAISE_AHEAD_MS, START_LAG_MS, at, block_end
from tests.conformance.conftest import MemoryMaster, RealMaster
from tests.conformance.rules import run_at, some_fence, some_time
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL_MS, counters, locks
from tests.conformance.tools import OURS, Master
from tests.servers import EACH_ARM, Nodes, make_fresh
from tests.unit.worlds import virtual

TRIES: Final = 300
LOCK, COUNTER = *locks("a"), *counters("a")
KEYS: Final = [LOCK, COUNTER, SENTINEL]

Tried = Callable[[Master, Random], None]


def counted(stored: int | None, floor: int, now_us: int) -> int:
    """Return what a counter counts as."""
    return max(at(now_us // 1000 - START_LAG_MS) if stored is None else stored, floor)


def ask(master: Any, now_us: int, script: Script, *words: bytes | int) -> tuple[Any, Any]:
    """Run a script; return its answer and what is under the counter then."""
    reply = run_at(master, now_us, script, KEYS, *words)
    return reply, master.look([COUNTER])[0][0]


def an_acquire(master: Master, random: Random) -> None:
    """Its fence is above all before, the ballot where that is possible, and even; it is stored in full."""
    now_us = some_time(random)
    stored, floor, ballot = (some_fence(random, now_us) for _ in "abc")
    before = random.choice((None, stored))
    block = random.choice((1, 1, 2, random.randint(1, MAX_BLOCK), MAX_BLOCK))
    master.put([(LOCK, None, None), (COUNTER, None if before is None else b"%d" % before, None)])
    words = (OURS, TTL_MS, ballot, block, KEEP_MS, EXPECTED, floor, b"")
    said = ask(master, now_us, _scripts.ACQUIRE, *words)
    fence = block_end(max(counted(before, floor, now_us) + 1, min(ballot, at(now_us // 1000))), block)
    assert said == ([1, fence, now_us], b"%d" % fence), (before, *words)


def a_raise(master: Master, random: Random) -> None:
    """It is done, refused as too far ahead of the node's clock, or finds a greater counter."""
    now_us = some_time(random)
    stored, floor, fence = (some_fence(random, now_us) for _ in "abc")
    before = random.choice((None, stored))
    master.put([(LOCK, OURS, None), (COUNTER, None if before is None else b"%d" % before, None)])
    said = ask(master, now_us, _scripts.RAISE, OURS, fence, KEEP_MS, EXPECTED, floor, b"")
    known = counted(before, floor, now_us)
    if fence > at(now_us // 1000 + RAISE_AHEAD_MS):
        assert said == (-2, None if before is None else b"%d" % before)
    else:
        assert said == (1 if known <= fence else -3, b"%d" % max(known, fence)), (before, floor, fence)


@pytest.mark.parametrize("tried", [an_acquire, a_raise])
@pytest.mark.parametrize("arm", ["memory", *EACH_ARM])
def test_fences_are_exact(arm: str, tried: Tried, shared_sets: Callable[[str], Nodes]) -> None:
    """For random counters, floors, ballots, blocks and times, many of them next to a limit."""

    @virtual
    async def tries() -> None:
        with contextlib.ExitStack() as stack:
            if arm == "memory":
                master: Master = MemoryMaster()
            else:
                make_fresh(nodes := shared_sets(arm))
                master = stack.enter_context(contextlib.closing(RealMaster(nodes, 0)))
            master.put([(SENTINEL, EXPECTED, None)])
            random = Random(1)
            for _ in range(TRIES):
                tried(master, random)

    tries()
