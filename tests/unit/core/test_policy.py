"""Retry and extension policies: how long to wait, when to stop."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.policy import (
    EXTENSION_RETRY,
    ExtensionPolicy,
    RetryPolicy,
    after_expiry,
    fallback_retry,
    notice_jitter,
    number,
    poll,
    reminder,
    should_retry_now,
)

NAN, INF = float("nan"), float("inf")


def twin_longest(policy: RetryPolicy, attempt: int) -> Fraction:
    """Double the base once per attempt until the cap is reached, in exact arithmetic."""
    cap = Fraction(policy.cap)
    return min(Fraction(policy.base) * 2 ** min(attempt, 10_000), cap)


@pytest.mark.parametrize(
    ("attempt", "longest"),
    [(0, 0.01), (1, 0.02), (2, 0.04), (3, 0.08), (4, 0.16), (5, 0.32), (6, 0.5), (7, 0.5), (1000, 0.5)],
)
def test_the_default_back_off_doubles_to_its_cap(attempt: int, longest: float) -> None:
    """A draw in the middle waits half of the longest wait, which doubles from 10 ms to 500 ms (R13)."""
    policy = RetryPolicy()
    assert policy.backoff(attempt, 0.5) == pytest.approx(longest / 2)
    assert policy.backoff(attempt, 0.0) == 0


@given(st.floats(1e-6, 100), st.floats(1, 1e6), st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_the_back_off_agrees_with_its_twin(base: float, factor: float, attempt: int, chance: float) -> None:
    """Any policy waits a share of the twin's longest wait, as long as the cap is within reach of the base."""
    policy = RetryPolicy(base=base, cap=base * factor)
    exact = float(Fraction(chance) * twin_longest(policy, attempt))
    assert policy.backoff(attempt, chance) == pytest.approx(exact, rel=1e-9)


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


def test_extension_retries_are_quick_and_capped() -> None:
    """An unknown extension is tried again within half a second, always (R8)."""
    assert EXTENSION_RETRY.backoff(0, 1.0) <= 0.05
    assert max(EXTENSION_RETRY.backoff(attempt, 1.0) for attempt in range(100)) == 0.5


@pytest.mark.parametrize(
    ("limit", "left", "used_up"),
    [(0, [], [0, 1]), (1, [0], [1, 2]), (100, [0, 99], [100, 101]), (None, [0, 10**9], [])],
)
def test_extensions_are_counted_against_the_limit(
    limit: int | None, left: list[int], used_up: list[int]
) -> None:
    """A lease is left to run out once it was extended as often as allowed; None is no limit."""
    policy = ExtensionPolicy(max_extensions=limit)
    assert policy.enabled is (limit != 0)
    assert not any(map(policy.exhausted, left))
    assert all(map(policy.exhausted, used_up))


def test_the_default_policy_is_bounded() -> None:
    """Extensions are limited by default: every third of the ttl, 1000 times, 5 % grace.  `off()` allows none,
    and then nothing needs to fit between `every` and `grace`.
    """
    policy = ExtensionPolicy()
    assert (policy.every, policy.max_extensions, policy.grace) == (1 / 3, 1000, 0.05)
    assert ExtensionPolicy.off().max_extensions == 0
    assert not ExtensionPolicy(every=0.9, grace=0.2, max_extensions=0).enabled


def test_every_and_grace_leave_room_for_a_round() -> None:
    """All shares in steps of 7 %: accepted exactly when a lease is extended well before its body is
    stopped.
    """
    for every, grace in itertools.product(range(-7, 112, 7), repeat=2):
        fits = 0 < every < 100 and 0 <= grace <= 45 and every + grace < 90
        if fits:
            ExtensionPolicy(every=every / 100, grace=grace / 100)
        else:
            with pytest.raises(ValueError, match=r"ExtensionPolicy\.(every|grace)"):
                ExtensionPolicy(every=every / 100, grace=grace / 100)


@pytest.mark.parametrize("policy", [RetryPolicy(), ExtensionPolicy()])
def test_policies_are_values(policy: RetryPolicy | ExtensionPolicy) -> None:
    """Two policies with the same settings are equal, and none can be changed."""
    assert policy == type(policy)()
    assert hash(policy) == hash(type(policy)())
    for field in dataclasses.fields(policy):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(policy, field.name, 1)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, TypeError) for value in (True, "1", None, 1j, Fraction(1, 2))),
        (NAN, ValueError),
        (INF, ValueError),
    ],
)
def test_what_is_no_number_is_named(value: object, error: type[Exception]) -> None:
    """The error has the parameter's name and the value; ints and floats pass, as floats."""
    with pytest.raises(error, match=r"^ttl must be ") as caught:
        number("ttl", value)
    assert repr(value) in str(caught.value)
    assert [repr(number("ttl", right)) for right in (0, -1, 2.5)] == ["0.0", "-1.0", "2.5"]


CHANCES = st.floats(0, 1, exclude_max=True)
CROWDS = st.integers(0, 10**9)


@given(st.floats(0, 1), st.integers(0, 10**9), CROWDS, CHANCES)
def test_the_jitter_after_a_notice_is_bounded(
    round_trip: float, splits: int, crowd: int, chance: float
) -> None:
    """However many tries had no winner, the wait after a notice is finite and shorter than the base."""
    policy = RetryPolicy()
    wait = notice_jitter(policy, chance, round_trip=round_trip, splits=splits, listeners=crowd)
    assert 0 <= wait < policy.base


@pytest.mark.parametrize("crowd", [0, 1, 2, 1000])
@pytest.mark.parametrize(("splits", "longest"), [(0, 0.001), (1, 0.002), (3, 0.008), (4, 0.01), (5000, 0.01)])
def test_waiters_come_apart_by_a_round_trip_or_more(splits: int, longest: float, crowd: int) -> None:
    """The span doubles with each split up to the base (R13); a waiter that was told alone does not step
    aside, unless a split says that another asks without being told (R33).
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


@pytest.mark.parametrize("crowd", [50, 100, 1000, 10_000])
def test_a_crowd_is_reminded_fifty_to_a_hundred_times_a_second(crowd: int) -> None:
    """All of it together, whatever its size (R33)."""
    shortest, longest = (crowd / reminder(RetryPolicy(), chance, listeners=crowd) for chance in (0.0, 1.0))
    assert (shortest, longest) == (pytest.approx(100), pytest.approx(50))


def test_a_waiter_that_let_a_notice_pass_asks_sooner() -> None:
    """In case that all did: one of them within 20 ms in the mean, whatever the size of the crowd (R33)."""
    for crowd in (4, 100, 10_000):
        assert fallback_retry(0.0, crowd) == 0.0
        assert fallback_retry(1 / crowd, crowd) == pytest.approx(0.02)
        assert fallback_retry(0.9, crowd) == pytest.approx(0.9 * crowd * 0.02)


@given(CROWDS, CHANCES, st.integers(0, 10**9))
def test_no_node_can_make_waits_endless(crowd: int, chance: float, attempt: int) -> None:
    """A crowd counts for 10,000 at most, whatever a server or a notice says."""
    policy, longest = RetryPolicy(), 10_000 * 0.02
    assert fallback_retry(chance, crowd) <= longest
    assert reminder(policy, chance, listeners=crowd) <= longest
    assert poll(policy, attempt, chance, listeners=crowd) <= longest
    assert after_expiry(policy, chance, round_trip=0.01, listeners=crowd) <= 100
    assert should_retry_now(crowd, 3e-4 * 0.99)


@pytest.mark.parametrize(("crowd", "longest"), [(0, 0.01), (1, 0.01), (10, 0.01), (100, 0.1), (1000, 1.0)])
def test_a_crowd_comes_apart_when_a_key_expires(crowd: int, longest: float) -> None:
    """By a round trip each; by the base of the policy at least (R33)."""
    wait = after_expiry(RetryPolicy(), 0.5, round_trip=0.001, listeners=crowd)
    assert wait == pytest.approx(longest / 2)


@pytest.mark.parametrize("attempt", [0, 1, 5, 9, 1000])
def test_a_foreign_holder_is_polled_as_the_policy_says(attempt: int) -> None:
    """By one waiter; a crowd polls as often as three would, and none of it later than it is reminded."""
    policy, chance = RetryPolicy(), 0.5
    waits = [poll(policy, attempt, chance, listeners=crowd) for crowd in (0, 1, 3, 30, 300)]
    assert waits[:3] == pytest.approx([min(policy.backoff(attempt, chance), reminder(policy, chance))] * 3)
    for crowd, wait in ((30, waits[3]), (300, waits[4])):
        in_turn = policy.backoff(attempt, chance) * crowd / 3
        assert wait == pytest.approx(min(in_turn, reminder(policy, chance, listeners=crowd)))
