"""Scripts for many single locks: on every kind of master each is dealt with as if it had come alone (R42)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from string import ascii_letters
from typing import Any, Final

import pytest

from aioredlock_ng._core.fencing import START_LAG_MS, at, block_end
from tests.conformance.stage import EXPECTED, KEEP, SENTINEL, TTL, Stage, counters, locks, pairs, staged
from tests.conformance.tools import FOREIGN, OTHERS, OURS, WRONG, Master, alike, lives

NAMES: Final = ascii_letters[:32]
"""As many as one batch has."""


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with a sentinel."""
    async with staged(master) as made:
        yield made


def plain(answer: Any) -> Any:
    """Return an answer; of an error its first word."""
    return answer.split()[0].decode() if isinstance(answer, bytes) else answer


async def test_free_locks_are_all_granted_at_the_ballot(stage: Stage) -> None:
    """Each lock is ours for its ttl, each counter stands at the fence and lives for its own time."""
    ballot = await stage.fence(-10)
    before = await stage.now_ms()
    time_us, *answers = await stage.acquire_many(NAMES, ballot=ballot)
    assert before <= time_us // 1000 <= await stage.now_ms()
    assert answers == [ballot] * 32
    assert stage.stored(NAMES) == [OURS] * 32 + [b"%d" % ballot] * 32
    assert all(map(lives, stage.lives(NAMES), [TTL] * 32 + [KEEP] * 32))


@pytest.mark.parametrize("block", [1, 2, 32])
async def test_a_block_ends_where_its_counter_stands(stage: Stage, block: int) -> None:
    """The answer is its last number, the next even one (R21)."""
    ballot = await stage.fence(-10)
    stored = await stage.fence(-1)
    stage.put(counters("b")[0], b"%d" % stored)
    _, *answers = await stage.acquire_many("ab", ballot=ballot, block=block)
    assert answers == [block_end(ballot, block), block_end(stored + 1, block)]
    assert stage.stored("ab") == [OURS] * 2 + [b"%d" % answer for answer in answers]


@pytest.mark.parametrize(
    ("stored", "floor", "ballot", "wanted"),
    [
        pytest.param(None, None, None, "above start", id="a missing counter starts behind the node's time"),
        pytest.param(-400.0, None, None, "above stored", id="a counter older than that counts as it is"),
        pytest.param(-1.0, None, -10.0, "above stored", id="a counter above the ballot"),
        pytest.param(-10.0, None, -10.0, "above stored", id="a counter at the ballot"),
        pytest.param(-20.0, None, -10.0, "at ballot", id="a ballot above the counter"),
        pytest.param(-20.0, None, 3600.0, "at now", id="a ballot is capped by the node's time"),
        pytest.param(5.0, None, 3600.0, "above stored", id="a counter beyond the node's time grows by one"),
        pytest.param(-400.0, 12.0, 0.0, "above floor", id="nothing is below the floor"),
        pytest.param(12.0, 12.0, 0.0, "above floor", id="a counter at the floor"),
        pytest.param(None, 12.0, None, "above floor", id="a missing counter neither"),
        pytest.param(-1.0, -20.0, None, "above stored", id="a floor below the counter does nothing"),
    ],
)
@pytest.mark.parametrize("odd", [False, True])
async def test_where_a_fence_comes_from(
    stage: Stage, *, stored: float | None, floor: float | None, ballot: float | None, wanted: str, odd: bool
) -> None:
    """Above counter, start and floor; the ballot where that is possible, but never beyond the node's time.

    The next even number, since the holder is alone (R21): an odd counter is what readers left.
    """
    moment = await stage.fence(0)
    numbers = {
        name: 0 if seconds is None else moment + at(round(seconds * 1000)) + (odd and name != "ballot")
        for name, seconds in {"stored": stored, "floor": floor, "ballot": ballot}.items()
    }
    if stored is not None:
        stage.put(counters("a")[0], b"%d" % numbers["stored"])
    time_us, fence = await stage.acquire_many(floor=numbers["floor"], ballot=numbers["ballot"])
    numbers |= {"now": at(time_us // 1000), "start": at(time_us // 1000 - START_LAG_MS)}
    where, name = wanted.split()
    assert fence == (block_end(numbers[name] + 1, 1) if where == "above" else numbers[name])
    assert stage.stored() == [OURS, b"%d" % fence]


async def test_each_lock_has_an_answer_of_its_own(stage: Stage) -> None:
    """Of 32 locks some are taken, some ours already, some cannot be: the others are granted all the same."""
    ballot, high = await stage.fence(-10), await stage.fence(-1)
    for key, value, ttl in [
        (locks("a")[0], WRONG, None),
        (counters("b")[0], WRONG, None),
        (locks("c")[0], FOREIGN, None),
        (locks("d")[0], OTHERS, 30.0),
        (locks("e")[0], OURS, 30.0),
        (counters("e")[0], b"%d" % high, 30.0),
        (counters("f")[0], b"%d" % high, 300.0),
        (counters("g")[0], b"7", 300.0),
        (locks("h")[0], OURS, 30.0),
        (counters("h")[0], WRONG, None),
    ]:
        stage.put(key, value, ttl)
    reply = await stage.acquire_many(NAMES, ballot=ballot, floor=100)
    assert isinstance(reply, list), reply
    _, *answers = reply
    taken = answers[3]
    assert -30_000 <= taken < -22_000
    wanted = ["WRONGTYPE", "WRONGTYPE", 0, taken, high, high + 2, ballot, "WRONGTYPE", *[ballot] * 24]
    assert list(map(plain, answers)) == wanted
    assert stage.stored("abcdefgh") == [
        *(WRONG, OURS, FOREIGN, OTHERS, OURS, OURS, OURS, OURS),
        *(None, WRONG, None, None, b"%d" % high, b"%d" % (high + 2), b"%d" % ballot, WRONG),
    ]
    lock_ttls, counter_ttls = (
        [None, TTL, None, 30.0, 30.0, TTL, TTL, 30.0],
        [None] * 4 + [30.0, KEEP, KEEP, None],
    )
    assert all(map(lives, stage.lives("abcdefgh"), lock_ttls + counter_ttls))


async def test_one_name_twice_is_granted_once(stage: Stage) -> None:
    """To the first; the same owner's repetition stands at the same fence."""
    ballot = await stage.fence(-10)
    assert (await stage.acquire_many("aa", ballot=ballot))[1:] == [ballot] * 2
    _, taken = await stage.acquire_many("a", ballot=ballot, owner=OTHERS)
    assert -60_000 <= taken < -52_000
    assert await stage.release_many("aa") == [1, [0, 0, 0]]


@pytest.mark.parametrize("why", ["missing", "another", "longer", "identity"])
async def test_nothing_is_granted_without_a_vote(stage: Stage, why: str) -> None:
    """A sentinel that is not exactly the expected one, or another identity: the answer is the time alone."""
    identity = await stage.identity()
    stamp = (EXPECTED, b"")
    if why == "missing":
        stage.put(SENTINEL, None)
        stamp = (b"", b"")
    elif why == "another":
        stage.put(SENTINEL, EXPECTED.replace(b"somebody", b"another!"))
    elif why == "longer":
        stage.put(SENTINEL, EXPECTED + b"0")
    else:
        stamp = (EXPECTED, identity[:-1])
    time_us = await stage.acquire_many("ab", stamp=stamp)
    assert isinstance(time_us, int), time_us
    assert abs(time_us // 1000 - await stage.now_ms()) < 8000
    assert stage.stored("ab") == [None] * 4
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(locks("b")[0], OTHERS, 30.0)
    for fence in (0, await stage.fence(0)):
        assert await stage.extend_many(fence, "abc", stamp=stamp) == [11, 9, 10]
    assert stage.stored("a") == [OURS, b"%d" % fence], "who holds a lock may lift its counter without a vote"


@pytest.mark.parametrize("what", ["acquire_many", "extend_many"])
async def test_a_sentinel_of_another_type_is_an_error(stage: Stage, what: str) -> None:
    """It is the error of the whole batch, and nothing changes."""
    stage.put(SENTINEL, WRONG)
    asked: dict[str, Callable[[], Any]] = {
        "acquire_many": lambda: stage.acquire_many("ab"),
        "extend_many": lambda: stage.extend_many(0, "ab"),
    }
    assert await asked[what]() == "WRONGTYPE"
    assert stage.stored("ab") == [None] * 4


# -- extensions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("voting", [True, False])
@pytest.mark.parametrize("fenced", [True, False])
async def test_each_lock_is_extended_alone(stage: Stage, fenced: bool, voting: bool) -> None:
    """Ours lives for the ttl or longer, with its counter at the fence; what is not ours stays as it is."""
    fence = await stage.fence(-10) if fenced else 0
    for name, ttl in (("a", 30.0), ("b", 120.0), ("c", None)):
        stage.put(locks(name)[0], OURS, ttl)
        stage.put(counters(name)[0], b"%d" % fence, 30.0)
    stage.put(locks("e")[0], OTHERS, 30.0)
    stage.put(locks("f")[0], WRONG)
    stage.put(locks("g")[0], OURS, 30.0)
    answers = await stage.extend_many(fence, "abcdefg", stamp=() if voting else None)
    assert list(map(plain, answers)) == [1, 1, 1, 0, -1, "WRONGTYPE", 1]
    assert stage.stored("abcdefg")[:7] == [OURS, OURS, OURS, None, OTHERS, WRONG, OURS]
    assert all(map(lives, stage.lives("abcdefg")[:7], [TTL, 120.0, TTL, None, 30.0, None, TTL]))
    kept = KEEP if fenced else 30.0
    assert all(map(lives, stage.lives("abc")[3:], [kept] * 3))
    assert stage.stored("dg")[2:] == [None, b"%d" % fence if fenced else None]


@pytest.mark.parametrize("floored", [True, False])
async def test_an_extension_lifts_stragglers_as_far_as_it_may(stage: Stage, floored: bool) -> None:
    """Never down, never beyond the node's time and ten seconds, never below the floor."""
    fence, far = await stage.fence(5), await stage.fence(60)
    floor = fence + 5 if floored else 0
    before = {"a": None, "b": b"7", "c": b"%d" % fence, "d": b"%d" % (fence + 9), "e": WRONG}
    for name, stored in before.items():
        stage.put(locks(name)[0], OURS, 30.0)
        stage.put(counters(name)[0], stored, 30.0)
    answers = await stage.extend_many(fence, "abcde", floor=floor)
    assert list(map(plain, answers)) == [1, 1, 1, 1, "WRONGTYPE"]
    least = b"%d" % max(fence, floor)
    assert stage.stored("abcde")[5:] == [least, least, least, before["d"], WRONG]
    assert all(map(lives, stage.lives("abcde"), [TTL] * 5 + [KEEP] * 4 + [30.0]))
    stage.put(counters("a")[0], None)
    assert await stage.extend_many(far, "a") == 1
    assert stage.stored() == [OURS, None]
    stage.put(counters("a")[0], b"7", 30.0)
    assert await stage.extend_many(far, "a") == 1
    assert stage.stored() == [OURS, b"7"]
    assert all(map(lives, stage.lives(), [TTL, KEEP]))


# -- releases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loud", [b"", b"1"])
async def test_each_lock_is_released_alone(stage: Stage, loud: bytes) -> None:
    """What is ours is gone; of what is not the answer tells as a single release does.  Counters stay."""
    for key in pairs("abc"):
        stage.put(key, OURS, 30.0)
    for name, value, ttl in (
        ("d", OTHERS, 30.0),
        ("e", FOREIGN, None),
        ("f", WRONG, None),
        ("h", b"0" * 40 + b":1763640000000:host:1", 30.0),
    ):
        stage.put(locks(name)[0], value, ttl)
    answers = await stage.release_many("abcdefghi", loud=loud)
    missing, known = [0, 0, 0], [0, 30_000, 0, 0, b"host:1"]
    wanted = [1, 1, 1, [0, 30_000, 0, 0], [0, -1, 0, 1], "WRONGTYPE", missing, known, missing]
    assert alike(list(map(plain, answers)), wanted)
    assert stage.stored("abcdef") == [None, None, None, OTHERS, FOREIGN, WRONG, *[OURS] * 3, None, None, None]
