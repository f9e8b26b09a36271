"""Extending, topping up and releasing with a fence, on every kind of master (R6, R9–R12)."""

from __future__ import annotations

import pytest

from tests.conformance.masters import WRONG
from tests.conformance.stage import EXPECTED, FAR, KEEP, TTL, waits
from tests.conformance.tools import OTHERS, OURS, lives

each_extension = pytest.mark.parametrize(("what", "done"), [("extend", 1), ("top_up", 0)])


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
    stamp = (EXPECTED, b"") if vote else (EXPECTED + b"0", b"")
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


async def test_an_extension_asks_for_the_identity_where_it_is_told_one(stage):
    """With another server's it has no vote; and without one there is no floor to trust."""
    identity = await stage.identity()
    fence, floor = await stage.fence(0), await stage.fence(5)
    stage.hold("a")
    assert await stage.extend(fence, floor=floor, stamp=(EXPECTED, b"x" + identity)) == 11
    assert stage.counted() == [fence]
    assert await stage.extend(fence, floor=floor, stamp=(EXPECTED, identity)) == 1
    assert stage.counted() == [floor]


async def test_a_release_raises_only_where_the_lock_was_ours(stage):
    """Another client's counter is not touched (R10), nor is one of a lock that is gone, however often (R5)."""
    fence = await stage.fence(0)
    stage.hold("a")
    stage.hold("b", OTHERS)
    for number, asked in ((1, fence), (0, fence + 1)):
        deleted, wait, *_ = await stage.release(asked, "abc")
        assert (deleted, waits(wait, 30)) == (number, True)
        assert stage.stored("abc") == [None, OTHERS, None, fence, None, None]


@pytest.mark.parametrize("what", ["lock", "counter", "fence"])
async def test_nothing_keeps_a_lock_from_its_release(stage, what):
    """What is ours goes, past another type, which is left, and though a fence is far ahead of the clock."""
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
