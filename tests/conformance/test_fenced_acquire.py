"""The fenced acquire and the raise: what they answer and leave, on every kind of master (R10–R12)."""

from __future__ import annotations

import pytest

from aioredlock_ng._core.fencing import MAX_BLOCK, block_end
from tests.conformance.masters import WRONG
from tests.conformance.stage import (
    EXPECTED,
    KEEP,
    SENTINEL,
    TTL,
    counters,
    each_reason,
    locks,
    waits,
    without_a_vote,
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
    assert (code, first) == (1, block_end(ballot, block))
    assert before <= time_us // 1000 <= await stage.now_ms()
    assert stage.stored(names) == [OURS] * len(names) + [first] * len(names)
    assert all(map(lives, stage.lives(names), [TTL] * len(names) + [KEEP] * len(names)))
    stage.hold(names, None)
    assert (await stage.acquire(names, ballot=ballot, block=block))[:2] == [1, block_end(first + 1, block)]


@each_number
async def test_a_repeated_acquire_changes_nothing(stage, names):
    """It is granted again with the same fence, and nothing lives longer; where a part has ended it is new."""
    _, fence, _ = await stage.acquire(names, block=3)
    stage.hold(names)
    stage.count(names, *[fence] * len(names))
    assert (await stage.acquire(names, ballot=await stage.fence(0), block=3))[:2] == [1, fence]
    assert stage.stored(names) == [OURS] * len(names) + [fence] * len(names)
    assert all(lives(ttl, 30.0) for ttl in stage.lives(names))
    stage.hold("a", None)
    assert (await stage.acquire(names))[:2] == [1, fence + 2]
    assert stage.stored(names) == [OURS] * len(names) + [fence + 2] * len(names)


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


@pytest.mark.parametrize("what", ["lock", "counter", "sentinel"])
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_another_type_is_an_error(stage, what, names):
    """Nothing is granted nor raised; what a failing counter lets happen before the error, a release undoes."""
    key = {"lock": locks(names)[-1], "counter": counters(names)[-1], "sentinel": SENTINEL}[what]
    stage.put(key, WRONG)
    assert await stage.acquire(names) == "WRONGTYPE"
    assert stage.look(key) == (WRONG, None)
    if what == "counter" and names == "a":
        assert await stage.release(0, names) == [1, 0, 0]
    assert set(stage.stored(names)) <= {None, WRONG}
    if what != "lock":
        stage.hold(names)
    assert await stage.raise_(await stage.fence(0), names[-1]) == "WRONGTYPE"


@pytest.mark.parametrize("why", each_reason)
async def test_nothing_is_granted_without_a_vote(stage, why):
    """A sentinel that is not exactly the expected one, or another server's identity: nothing changes."""
    stamp = (EXPECTED, await stage.identity())
    assert (await stage.acquire("b", stamp=stamp))[0] == 1, "this is what a vote looks like"
    now, stamp = await stage.fence(0), await without_a_vote(stage, why)
    code, nothing, time_us = await stage.acquire(stamp=stamp)
    assert (code, nothing) == (-1, 0)
    assert abs(time_us // 1000 - await stage.now_ms()) < SLACK * 1000
    assert stage.stored() == [None, None]
    stage.hold("a")
    assert await stage.raise_(now, stamp=stamp) == -1
    assert await stage.extend(now, stamp=stamp) == 11
    assert (await stage.acquire(stamp=stamp))[0] == -1, "not even what is ours already"


@pytest.mark.parametrize("state", [None, OTHERS])
async def test_a_raise_needs_every_lock(stage, state):
    """0: one of the names is gone or another client's, and no counter moves.  With all of them counters do."""
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
