"""Extending, topping up and releasing with a fence, on every kind of master (R6, R9–R12)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioredlock_ng._core.fencing import at, block_end
from tests.conformance.stage import EXPECTED, KEEP, SENTINEL, TTL, Stage, counters, locks, staged
from tests.conformance.tools import OTHERS, OURS, WRONG, Master, lives

FAR = 60.0
"""Seconds: beyond what a node lets itself be raised."""


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with a sentinel."""
    async with staged(master) as made:
        yield made


# -- extend, top-up ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["extend", "top_up"])
async def test_stragglers_are_raised_in_passing(stage: Stage, what: str) -> None:
    """Counters below the lease's fence, or missing, stand at it then; one above it is left; all live on."""
    fence = await stage.fence(5)
    for name, stored in (("a", None), ("b", fence - 1), ("c", fence), ("d", fence + 1)):
        stage.put(locks(name)[0], OURS, 30.0)
        stage.put(counters(name)[0], None if stored is None else b"%d" % stored, 30.0)
    assert await getattr(stage, what)(fence, "abcd") == (1 if what == "extend" else 0)
    assert stage.stored("abcd") == [OURS] * 4 + [b"%d" % fence] * 3 + [b"%d" % (fence + 1)]
    assert all(map(lives, stage.lives("abcd"), [TTL] * 4 + [KEEP] * 4))


@pytest.mark.parametrize("what", ["extend", "top_up"])
async def test_a_fence_too_far_ahead_raises_nothing(stage: Stage, what: str) -> None:
    """The lock lives on all the same; a counter keeps its value and lives on, and none is made."""
    fence = await stage.fence(FAR)
    for name, stored in (("a", None), ("b", b"7"), ("c", b"%d" % (fence + 1))):
        stage.put(locks(name)[0], OURS, 30.0)
        stage.put(counters(name)[0], stored, 30.0)
    assert await getattr(stage, what)(fence, "abc") == (1 if what == "extend" else 0)
    assert stage.stored("abc") == [OURS] * 3 + [None, b"7", b"%d" % (fence + 1)]
    assert all(map(lives, stage.lives("abc"), [TTL] * 3 + [None, KEEP, KEEP]))


@pytest.mark.parametrize("what", ["extend", "top_up"])
async def test_nothing_is_shortened(stage: Stage, what: str) -> None:
    """A lock that lives longer than asked for, or for ever, goes on as it is, or for the ttl."""
    stage.put(locks("a")[0], OURS, 90.0)
    await getattr(stage, what)(await stage.fence(0))
    assert all(map(lives, stage.lives(), [90.0, KEEP]))


@pytest.mark.parametrize("vote", [True, False])
async def test_what_an_extension_answers(stage: Stage, vote: bool) -> None:
    """1: extended, 0: something is missing, -1: something is not ours; 10 more without a vote.

    Only what was extended is changed at all.
    """
    stamp = (EXPECTED, b"") if vote else (EXPECTED + b"0", b"")
    more = 0 if vote else 10
    fence = await stage.fence(0)
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.extend(fence, "ab", stamp=stamp) == more
    stage.put(locks("b")[0], OTHERS, 30.0)
    assert await stage.extend(fence, "ab", stamp=stamp) == more - 1
    stage.put(locks("a")[0], None)
    assert await stage.extend(fence, "ab", stamp=stamp) == more - 1
    stage.put(locks("a")[0], OURS, 30.0)
    assert stage.stored("ab") == [OURS, OTHERS, None, None]
    assert all(map(lives, stage.lives("ab"), [30.0, 30.0, None, None]))
    assert await stage.extend(fence, stamp=stamp) == more + 1
    assert stage.stored() == [OURS, b"%d" % fence]


@pytest.mark.parametrize("identity", ["right", "wrong"])
async def test_an_extension_asks_for_the_identity_where_it_is_told_one(stage: Stage, identity: str) -> None:
    """With another server's it has no vote."""
    right = await stage.identity()
    stage.put(locks("a")[0], OURS, 30.0)
    stamp = (EXPECTED, right if identity == "right" else b"x" + right)
    assert await stage.extend(1, stamp=stamp) == (1 if identity == "right" else 11)


async def test_the_floor_counts_only_with_a_vote(stage: Stage) -> None:
    """A counter that an extension writes is not below the floor; without a vote there is none to trust."""
    fence, floor = await stage.fence(0), await stage.fence(5)
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.extend(fence, floor=floor, stamp=(b"x", b"")) == 11
    assert stage.stored() == [OURS, b"%d" % fence]
    assert await stage.extend(fence, floor=floor) == 1
    assert stage.stored() == [OURS, b"%d" % floor]


async def test_a_lost_lock_is_given_back_with_its_fence(stage: Stage) -> None:
    """Missing locks are set, ours live on, another's spoils all; no sentinel is asked for (R9)."""
    stage.put(SENTINEL, WRONG)
    fence = await stage.fence(0)
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.top_up(fence, "ab") == 0
    assert stage.stored("ab") == [OURS] * 2 + [b"%d" % fence] * 2
    assert all(map(lives, stage.lives("ab"), [TTL] * 2 + [KEEP] * 2))
    stage.put(locks("b")[0], OTHERS, 30.0)
    assert await stage.top_up(fence + 1, "ab") == -1
    assert await stage.top_up(fence + 1, "bc") == -1
    assert stage.stored("abc") == [OURS, OTHERS, None] + [b"%d" % fence] * 2 + [None]


@pytest.mark.parametrize("what", ["extend", "top_up"])
async def test_another_type_under_a_counter_is_an_error(stage: Stage, what: str) -> None:
    """It costs the vote; the lock is extended nevertheless, which does no harm."""
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(counters("a")[0], WRONG)
    assert await getattr(stage, what)(await stage.fence(0)) == "WRONGTYPE"
    assert stage.stored() == [OURS, WRONG]
    assert lives(stage.lives()[0], TTL)


# -- release -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["missing", "below", "equal", "above"])
async def test_a_release_raises_in_passing(stage: Stage, stored: str) -> None:
    """The next fence will be above ours, on nodes that our raise had not reached, too."""
    fence = await stage.fence(0)
    number = {"missing": None, "below": fence - 1, "equal": fence, "above": fence + 1}[stored]
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(counters("a")[0], None if number is None else b"%d" % number, 30.0)
    assert await stage.release(fence) == [1, 0, 0]
    assert stage.stored() == [None, b"%d" % max(number or 0, fence)]
    assert await stage.release(fence) == [0, 0, 0], "a repetition finds nothing"
    assert stage.stored() == [None, b"%d" % max(number or 0, fence)]


async def test_a_release_raises_only_where_the_lock_was_ours(stage: Stage) -> None:
    """Another client's counter is not touched (R10), nor is one of a lock that is gone."""
    fence = await stage.fence(0)
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(locks("b")[0], OTHERS, 30.0)
    deleted, wait, *_ = await stage.release(fence, "abc")
    assert deleted == 1
    assert 22_000 < wait <= 30_000
    assert stage.stored("abc") == [None, OTHERS, None, b"%d" % fence, None, None]


async def test_a_release_far_ahead_of_the_nodes_clock_deletes(stage: Stage) -> None:
    """The lock goes, the counter stays below the cap."""
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.release(await stage.fence(FAR)) == [1, 0, 0]
    assert stage.stored() == [None, None]


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_counter_of_another_type_does_not_keep_a_lock(stage: Stage, names: str) -> None:
    """What cannot be raised is left; every lock of ours goes."""
    fence = await stage.fence(0)
    for name in names:
        stage.put(locks(name)[0], OURS, 30.0)
    stage.put(counters("a")[0], WRONG)
    assert await stage.release(fence, names) == [len(names), 0, 0]
    assert stage.stored(names) == [None] * len(names) + [WRONG] + [b"%d" % fence] * (len(names) - 1)


async def test_a_lock_of_another_type_does_not_keep_the_others(stage: Stage) -> None:
    """The error is told; what is ours has gone nevertheless."""
    stage.put(locks("a")[0], WRONG)
    stage.put(locks("b")[0], OURS, 30.0)
    fence = await stage.fence(0)
    assert await stage.release(fence, "ab") == "WRONGTYPE"
    assert stage.stored("ab") == [WRONG, None, None, b"%d" % fence]


async def test_a_release_repeated_late_does_no_harm(stage: Stage) -> None:
    """The ledger repeats it (R5): it neither deletes nor raises what has become another client's."""
    fence = (await stage.acquire())[1]
    assert await stage.release(fence) == [1, 0, 0]
    stage.put(locks("a")[0], OTHERS, 30.0)
    stage.put(counters("a")[0], b"%d" % (fence + 1), 30.0)
    deleted, wait, *_ = await stage.release(fence + 2)
    assert (deleted, wait > 0) == (0, True)
    assert stage.stored() == [OTHERS, b"%d" % (fence + 1)]


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 10**15, 2**50 - 1, 10**15 * 8, 2**53 - 1025, 2**53 - 3])
async def test_numbers_are_written_out_in_full(stage: Stage, number: int) -> None:
    """No exponent and no lost digit, up to what a double holds exactly."""
    stage.put(counters("a")[0], b"%d" % number)
    _, fence, time_us = await stage.acquire(ballot=number)
    assert fence == block_end(max(number + 1, min(number, at(time_us // 1000))), 1)
    assert stage.stored() == [OURS, b"%d" % fence]
    assert await stage.extend(1, floor=fence) == 1
    assert stage.stored() == [OURS, b"%d" % fence]
    assert await stage.release(fence) == [1, 0, 0]
    assert stage.stored() == [None, b"%d" % fence]
