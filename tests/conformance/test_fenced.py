"""The fenced scripts: what they answer and leave, on every kind of master (R6, R9–R12)."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.fencing import MAX_BLOCK, range_end
from tests.conformance.masters import WRONG
from tests.conformance.stage import (
    EXPECTED,
    FAR,
    KEEP,
    TTL,
    waits,
)
from tests.conformance.tools import OTHERS, OURS, SLACK, lives

each_number = pytest.mark.parametrize("names", ["a", "abc"])


@each_number
@pytest.mark.parametrize("block", [1, 2, MAX_BLOCK])
async def test_a_block_is_above_all_before_it(stage, names, block):
    """Its last number is the answer, where the counters stand: the next even one (R21, R43)."""
    stored, ballot = await stage.fence(-20), await stage.fence(-10)
    stage.count(names[-1], stored)
    before = await stage.now_ms()
    code, first, time_us = await stage.acquire(names, ballot=ballot, block=block)
    assert (code, first) == (1, range_end(ballot, block))
    assert before <= time_us // 1000 <= await stage.now_ms()
    assert stage.stored(names) == [OURS] * len(names) + [first] * len(names)
    assert all(map(lives, stage.lives(names), [TTL] * len(names) + [KEEP] * len(names)))
    stage.hold(names, None)
    assert (await stage.acquire(names, ballot=ballot, block=block))[:2] == [1, range_end(first + 1, block)]


@pytest.mark.parametrize(
    ("held", "wait"),
    [
        ({"a": 30.0}, 30.0),
        ({"b": 30.0, "c": 90.0}, 90.0),
        ({"a": 90.0, "c": 30.0}, 90.0),
        ({"a": 30.0, "b": None}, None),
        ({"b": None, "c": 30.0}, None),
    ],
    ids=str,
)
async def test_what_is_taken_stays_as_it_is(stage, held, wait):
    """The answer is how long the longest of the others will stay; neither locks nor counters change."""
    for name, ttl in held.items():
        stage.hold(name, OTHERS, ttl)
    stage.count("a", 7)
    for names in ("abc", "a") if set(held) == {"a"} else ("abc",):
        before, lived = stage.stored("abc"), stage.lives("abc")
        code, seen, time_us = await stage.acquire(names, ballot=await stage.fence(0))
        assert (code, waits(seen, wait)) == (0, True)
        assert abs(time_us // 1000 - await stage.now_ms()) < SLACK * 1000
        assert stage.stored("abc") == before
        assert all(map(lives, stage.lives("abc"), lived))


@pytest.mark.parametrize("state", [None, OTHERS])
async def test_a_raise_needs_every_lock(stage, state):
    """0: one of the names is gone or another client's, and no counter moves; with all of them they do."""
    fence = await stage.fence(0)
    stage.hold("a")
    stage.hold("b", state)
    assert await stage.raise_(fence, "ab") == 0
    assert stage.counted("ab") == [None, None]
    stage.hold("b")
    assert await stage.raise_(fence, "ab") == 1
    assert all(map(lives, stage.lives("ab"), [30.0] * 2 + [KEEP] * 2))
    stage.count("b", fence + 1)
    assert await stage.raise_(fence, "ab") == -3
    assert stage.counted("ab") == [fence, fence + 1]


each_extension = pytest.mark.parametrize(("what", "done"), [("extend", 1), ("repair", 0)])


@each_extension
async def test_a_fence_too_far_ahead_raises_nothing(stage, what, done):
    """The lock lives on all the same; a counter keeps its value and lives on, and none is made."""
    fence = await stage.fence(FAR)
    stage.hold("abc")
    stage.count("abc", None, 7, fence + 1)
    assert await getattr(stage, what)(fence, "abc") == done
    assert stage.stored("abc") == [OURS] * 3 + [None, 7, fence + 1]
    assert all(map(lives, stage.lives("abc"), [TTL] * 3 + [None, KEEP, KEEP]))


@each_extension
async def test_nothing_is_shortened(stage, what, done):
    """A lock that lives longer than asked for goes on as it is; a counter of another type costs the vote."""
    stage.hold("a", ttl=90.0)
    fence = await stage.fence(0)
    assert await getattr(stage, what)(fence) == done
    assert all(map(lives, stage.lives(), [90.0, KEEP]))
    stage.count("a", WRONG)
    assert await getattr(stage, what)(fence) == "WRONGTYPE"


@pytest.mark.parametrize("vote", [True, False])
async def test_what_an_extension_answers(stage, vote):
    """1: extended, 0: something is missing, -1: something is not ours; 10 more without a vote.

    Only what was extended is changed at all.
    """
    stamp = EXPECTED if vote else EXPECTED + b"0"
    more = 0 if vote else 10
    fence = await stage.fence(0)
    stage.hold("a")
    assert await stage.extend(fence, "ab", stamp=stamp) == more
    stage.hold("b", OTHERS)
    assert await stage.extend(fence, "ab", stamp=stamp) == more - 1
    stage.hold("a", None)
    assert await stage.extend(fence, "ab", stamp=stamp) == more - 1
    stage.hold("a")
    assert stage.stored("ab") == [OURS, OTHERS, None, None]
    assert all(map(lives, stage.lives("ab"), [30.0, 30.0, None, None]))
    assert await stage.extend(fence, stamp=stamp) == more + 1
    assert stage.stored() == [OURS, fence]


async def test_an_extension_without_a_vote_trusts_no_floor(stage):
    """With a vote it raises the counter to the floor; without one there is none."""
    fence, floor = await stage.fence(0), await stage.fence(5)
    stage.hold("a")
    assert await stage.extend(fence, floor=floor, stamp=b"x") == 11
    assert stage.counted() == [fence]
    assert await stage.extend(fence, floor=floor) == 1
    assert stage.counted() == [floor]


async def test_a_release_raises_only_where_the_lock_was_ours(stage):
    """Another client's counter is not touched (R10), nor that of a lock that is gone, however often (R5)."""
    fence = await stage.fence(0)
    stage.hold("a")
    stage.hold("b", OTHERS)
    for number, asked in ((1, fence), (0, fence + 1)):
        deleted, wait, *_ = await stage.release(asked, "abc")
        assert (deleted, waits(wait, 30)) == (number, True)
        assert stage.stored("abc") == [None, OTHERS, None, fence, None, None]


@pytest.mark.parametrize("what", ["lock", "counter", "fence"])
async def test_nothing_keeps_a_lock_from_its_release(stage, what):
    """Our keys go, past another type, which is left, and though a fence is far ahead of the clock."""
    fence = await stage.fence(FAR if what == "fence" else 0)
    stage.hold("ab")
    if what == "lock":
        stage.hold("a", WRONG)
    elif what == "counter":
        stage.count("a", WRONG)
    assert await stage.release(fence, "ab") == ("WRONGTYPE" if what == "lock" else [2, 0, 0])
    assert (
        stage.stored("ab")
        == {"lock": [WRONG, None, None, fence], "counter": [None, None, WRONG, fence], "fence": [None] * 4}[
            what
        ]
    )
