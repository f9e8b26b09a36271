"""The fenced acquire and the raise: what they answer and leave, on every kind of master (R10–R12)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioredlock_ng._core.fencing import MAX_BLOCK, START_LAG_MS, at, block_end
from tests.conformance.stage import EXPECTED, KEEP, SENTINEL, TTL, Stage, counters, locks, staged
from tests.conformance.tools import OTHERS, OURS, WRONG, Master, lives

FAR = 60.0
"""Seconds: beyond what a node lets itself be raised."""


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with a sentinel."""
    async with staged(master) as made:
        yield made


async def test_a_granted_acquire_sets_lock_and_counter(stage: Stage) -> None:
    """The lock lives for its ttl, the counter for its own; the answer is the fence and the node's time."""
    ballot = await stage.fence(-10)
    before = await stage.now_ms()
    code, fence, time_us = await stage.acquire(ballot=ballot)
    assert (code, fence) == (1, ballot)
    assert before <= time_us // 1000 <= await stage.now_ms()
    assert stage.stored() == [OURS, b"%d" % ballot]
    assert all(map(lives, stage.lives(), [TTL, KEEP]))


@pytest.mark.parametrize(
    ("stored", "floor", "ballot", "wanted"),
    [
        pytest.param(None, None, None, "above start", id="a missing counter starts behind the node's time"),
        pytest.param(-400.0, None, None, "above stored", id="a counter older than that counts as it is"),
        pytest.param(-1.0, None, -10.0, "above stored", id="a counter above the ballot"),
        pytest.param(-20.0, None, -10.0, "at ballot", id="a ballot above the counter"),
        pytest.param(-20.0, None, 3600.0, "at now", id="a ballot is capped by the node's time"),
        pytest.param(5.0, None, 3600.0, "above stored", id="a counter beyond the node's time grows by one"),
        pytest.param(-400.0, 12.0, 0.0, "above floor", id="nothing is below the floor"),
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
    numbers = {
        name: 0 if seconds is None else await stage.fence(seconds) + (odd and name != "ballot")
        for name, seconds in {"stored": stored, "floor": floor, "ballot": ballot}.items()
    }
    if stored is not None:
        stage.put(counters("a")[0], b"%d" % numbers["stored"])
    code, fence, time_us = await stage.acquire(floor=numbers["floor"], ballot=numbers["ballot"])
    numbers |= {"now": at(time_us // 1000), "start": at(time_us // 1000 - START_LAG_MS)}
    where, name = wanted.split()
    assert (code, fence) == (1, block_end(numbers[name] + 1, 1) if where == "above" else numbers[name])
    assert stage.stored() == [OURS, b"%d" % fence]


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
async def test_names_share_one_fence_above_all_their_counters(stage: Stage, names: str) -> None:
    """Every counter stands at it then, every lock is ours, and all live as long as one alone would."""
    for i, counter in enumerate(counters(names)):
        stage.put(counter, b"%d" % await stage.fence(-20 + i), 300.0)
    highest = await stage.fence(-1)
    stage.put(counters(names)[-1], b"%d" % highest, 300.0)
    code, fence, _ = await stage.acquire(names, ballot=highest - 5)
    assert (code, fence) == (1, highest + 2)
    assert stage.stored(names) == [OURS] * len(names) + [b"%d" % fence] * len(names)
    assert all(map(lives, stage.lives(names), [TTL] * len(names) + [KEEP] * len(names)))


@pytest.mark.parametrize("names", ["a", "abc"])
@pytest.mark.parametrize("block", [1, 2, MAX_BLOCK])
async def test_a_block_is_above_all_before_it(stage: Stage, names: str, block: int) -> None:
    """Its last number is the answer, where the counters stand: the next even one (R21, R43)."""
    stored, ballot = await stage.fence(-20), await stage.fence(-10)
    stage.put(counters(names)[-1], b"%d" % stored, 300.0)
    code, first, _ = await stage.acquire(names, ballot=ballot, block=block)
    assert (code, first) == (1, block_end(ballot, block))
    assert stage.stored(names) == [OURS] * len(names) + [b"%d" % first] * len(names)
    for key in locks(names):
        stage.put(key, None)
    assert (await stage.acquire(names, ballot=ballot, block=block))[:2] == [1, block_end(first + 1, block)]


@pytest.mark.parametrize("names", ["a", "abc"])
async def test_a_repeated_acquire_changes_nothing(stage: Stage, names: str) -> None:
    """It is granted again with the same fence; no counter moves, and nothing lives longer for it."""
    _, fence, _ = await stage.acquire(names, block=3)
    for key in (*locks(names), *counters(names)):
        stage.put(key, OURS if key in locks(names) else b"%d" % fence, 30.0)
    assert (await stage.acquire(names, ballot=await stage.fence(0), block=3))[:2] == [1, fence]
    assert stage.stored(names) == [OURS] * len(names) + [b"%d" % fence] * len(names)
    assert all(lives(ttl, 30.0) for ttl in stage.lives(names))


async def test_an_acquire_of_which_a_part_is_ours_is_a_new_one(stage: Stage) -> None:
    """A name of several has expired: all are set anew, with a fence above the one before."""
    _, first, _ = await stage.acquire("ab")
    stage.put(locks("a")[0], None)
    _, second, _ = await stage.acquire("ab")
    assert second == first + 2
    assert stage.stored("ab") == [OURS] * 2 + [b"%d" % second] * 2


@pytest.mark.parametrize(
    ("held", "wait"),
    [
        ({"a": 30.0}, 30_000),
        ({"b": 30.0, "c": 90.0}, 90_000),
        ({"a": 90.0, "c": 30.0}, 90_000),
        ({"a": 30.0, "b": None}, -1),
        ({"b": None, "c": 30.0}, -1),
    ],
    ids=str,
)
async def test_what_is_taken_stays_as_it_is(stage: Stage, held: dict[str, float | None], wait: int) -> None:
    """The answer is how long the longest of the others will stay; neither locks nor counters change."""
    for name, ttl in held.items():
        stage.put(locks(name)[0], OTHERS, ttl)
    stage.put(counters("a")[0], b"7", 30.0)
    for names in ("abc", "a") if set(held) == {"a"} else ("abc",):
        before, lived = stage.stored("abc"), stage.lives("abc")
        code, seen, time_us = await stage.acquire(names, ballot=await stage.fence(0))
        assert code == 0
        assert seen == -1 if wait == -1 else wait - 8000 < seen <= wait
        assert abs(time_us // 1000 - await stage.now_ms()) < 8000
        assert stage.stored("abc") == before
        assert all(map(lives, stage.lives("abc"), lived))


@pytest.mark.parametrize("what", ["lock", "counter", "sentinel"])
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_another_type_is_an_error(stage: Stage, what: str, names: str) -> None:
    """Nothing is granted; what a failing counter lets happen before the error, a release undoes."""
    key = {"lock": locks(names)[-1], "counter": counters(names)[-1], "sentinel": SENTINEL}[what]
    stage.put(key, WRONG)
    assert await stage.acquire(names) == "WRONGTYPE"
    assert stage.master.look([key]) == [(WRONG, None)]
    if what == "counter" and names == "a":
        assert await stage.release(0, names) == [1, 0, 0]
    assert set(stage.stored(names)) <= {None, WRONG}


@pytest.mark.parametrize("what", ["lock", "counter", "sentinel"])
async def test_another_type_is_no_certificate(stage: Stage, what: str) -> None:
    """A raise that meets one is an error."""
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put({"lock": locks("a")[0], "counter": counters("a")[0], "sentinel": SENTINEL}[what], WRONG)
    assert await stage.raise_(await stage.fence(0)) == "WRONGTYPE"


@pytest.mark.parametrize("why", ["missing", "another", "longer", "identity"])
async def test_nothing_is_granted_without_a_vote(stage: Stage, why: str) -> None:
    """A sentinel that is not exactly the expected one, or another server's identity: nothing changes."""
    identity = await stage.identity()
    assert (await stage.acquire("b", stamp=(EXPECTED, identity)))[0] == 1, "this is what a vote looks like"
    now = await stage.fence(0)
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
    code, nothing, time_us = await stage.acquire(stamp=stamp)
    assert (code, nothing) == (-1, 0)
    assert abs(time_us // 1000 - await stage.now_ms()) < 8000
    assert stage.stored() == [None, None]
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.raise_(now, stamp=stamp) == -1
    assert await stage.extend(now, stamp=stamp) == 11
    assert (await stage.acquire(stamp=stamp))[0] == -1, "not even what is ours already"


# -- raise ---------------------------------------------------------------------------------------


async def test_a_raise_lifts_what_is_below(stage: Stage) -> None:
    """1: all counters stand at the fence, whatever they were, and live on for as long as one can."""
    fence = await stage.fence(5)
    for names, below in (("a", None), ("b", fence - 1), ("c", fence)):
        stage.put(locks(names)[0], OURS, 30.0)
        stage.put(counters(names)[0], None if below is None else b"%d" % below, 30.0)
    assert await stage.raise_(fence, "abc") == 1
    assert stage.stored("abc") == [OURS] * 3 + [b"%d" % fence] * 3
    assert all(map(lives, stage.lives("abc"), [30.0] * 3 + [KEEP] * 3))


@pytest.mark.parametrize("state", [None, OTHERS])
async def test_a_raise_needs_every_lock(stage: Stage, state: bytes | None) -> None:
    """0: one of the names is gone or another client's, and no counter moves."""
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(locks("b")[0], state, 30.0)
    assert await stage.raise_(await stage.fence(0), "ab") == 0
    assert stage.stored("ab")[2:] == [None, None]


async def test_a_raise_too_far_ahead_is_refused(stage: Stage) -> None:
    """-2: beyond the node's own time and ten seconds; nothing moves, however high a counter is."""
    stage.put(locks("a")[0], OURS, 30.0)
    fence = await stage.fence(FAR)
    for stored in (None, b"7", b"%d" % fence):
        stage.put(counters("a")[0], stored, 30.0)
        assert await stage.raise_(fence) == -2
        assert stage.stored() == [OURS, stored]


@pytest.mark.parametrize("above", ["counter", "floor", "one of two counters"])
async def test_a_raise_below_a_counter_makes_no_certificate(stage: Stage, above: str) -> None:
    """-3: a counter is above the fence and stays there; the floor counts as one, and is written down."""
    fence = await stage.fence(0)
    for name in "ab":
        stage.put(locks(name)[0], OURS, 30.0)
    if above != "floor":
        stage.put(counters("b")[0], b"%d" % (fence + 1), 30.0)
    names = "ab" if above == "one of two counters" else "b"
    assert await stage.raise_(fence, names, floor=fence + 1 if above == "floor" else 0) == -3
    assert stage.stored("b") == [OURS, b"%d" % (fence + 1)]
    if names == "ab":
        assert stage.stored("a") == [OURS, b"%d" % fence]
