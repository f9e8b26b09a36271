"""Retry and extension policies: how long to wait, when to stop."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.policy import (
    ExtensionPolicy,
    RetryPolicy,
    notice_jitter,
    reminder,
    should_retry_now,
)

NAN, INF = float("nan"), float("inf")


@given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_longer_than_the_cap(attempt: int, chance: float) -> None:
    """However many attempts were made, the wait is finite, not negative, and below the cap."""
    assert 0 <= RetryPolicy().backoff(attempt, chance) < RetryPolicy().cap


@pytest.mark.parametrize(
    ("least", "waits"), [(0, [0.0, 1.0, 2.0, 3.0, 4.0]), (0.5, [2.0, 2.5, 3.0, 3.5, 4.0])]
)
def test_jitter_is_full(least: float, waits: list[float]) -> None:
    """Draws from 0 to 1 spread over the whole span: contenders come apart as far as they can.  With `least`
    they spread over the rest: a node that is down is not asked again at once.
    """
    policy = RetryPolicy(base=1.0, cap=8.0)
    assert [policy.backoff(2, chance / 4, least=least) for chance in range(5)] == waits


@pytest.mark.parametrize("crowd", [0, 1, 2, 1000])
@pytest.mark.parametrize(("splits", "longest"), [(0, 0.001), (1, 0.002), (3, 0.008), (4, 0.01), (5000, 0.01)])
def test_waiters_come_apart_by_a_round_trip_or_more(splits: int, longest: float, crowd: int) -> None:
    """The span doubles with each split up to the base (R13); a waiter that was notified alone does not step
    aside, unless a split says that another asks without a notice (R33).
    """
    wait = notice_jitter(RetryPolicy(), 0.5, round_trip=0.001, splits=splits, listeners=crowd)
    assert wait == pytest.approx(0 if (crowd, splits) == (1, 0) else longest / 2)


@pytest.mark.parametrize("crowd", [0, 1, 10, 25])
def test_a_waiter_that_is_told_of_releases_still_asks_now_and_then(crowd: int) -> None:
    """A reminder comes after half of the cap to all of it: a lost notice costs no more (R13), to few
    (R33).
    """
    waits = [reminder(RetryPolicy(cap=0.4), chance, listeners=crowd) for chance in (0.0, 0.5)]
    assert waits == pytest.approx([0.2, 0.3]) or crowd > 20
    assert [reminder(RetryPolicy(), chance, listeners=crowd) for chance in (0.0, 0.5)] == [0.25, 0.375]


@pytest.mark.parametrize(
    ("limit", "marks"),
    [(1000, [500, 900]), (10, [5, 9]), (7, [4, 7]), (3, [2, 3]), (1, [1]), (0, []), (None, [])],
)
def test_a_holder_is_warned_at_half_and_at_nine_tenths(limit, marks):
    """Two marks, rounded up so that a small limit has them as well; one for a limit of one, none without."""
    policy = ExtensionPolicy(max_extensions=limit)
    assert [count for count in range(1001) if policy.runs_low(count)] == marks


def test_the_time_that_is_left_is_that_of_the_extensions_that_are_left():
    """Each gives its share of the ttl, and the last lives until its deadline."""
    policy = ExtensionPolicy(max_extensions=10, every=0.5)
    assert policy.time_left(7, deadline=8.0, ttl=10.0) == 8.0 + 3 * 5.0
    assert policy.time_left(10, deadline=8.0, ttl=10.0) == 8.0
    assert ExtensionPolicy(max_extensions=None).time_left(7, deadline=8.0, ttl=10.0) == math.inf


# -- crowds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("crowd", "share"), [(0, 1), (1, 1), (3, 1), (4, 3 / 4), (30, 1 / 10), (300, 1 / 100)]
)
def test_three_of_a_crowd_follow_a_notice(crowd: int, share: float) -> None:
    """In the mean; all of three or fewer, and of a crowd of unknown size (R33)."""
    draws = [draw / 1200 for draw in range(1200)]
    assert sum(should_retry_now(crowd, chance) for chance in draws) == pytest.approx(share * len(draws))
