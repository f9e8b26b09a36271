"""Validity, drift, and when a lock will be free: tables, and twins in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.validity import (
    CLOCK_DRIFT_FACTOR,
    EXPIRY_PRECISION,
    drift,
    free_after,
    min_validity,
    valid_until,
)
from aioredlock_ng._settings.options import MAX_TTL, MIN_TTL

ttls = st.floats(0.001, 86_400)
moments = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [(0.001, 0.00201), (0.1, 0.003), (1.0, 0.012), (10.0, 0.102), (60.0, 0.602), (86_400.0, 864.002)],
)
def test_the_drift_is_the_pages(ttl: float, expected: float) -> None:
    """One percent of the ttl and two milliseconds, read from a table."""
    assert drift(ttl) == pytest.approx(expected, rel=1e-12)


def test_the_constants_are_the_pages() -> None:
    """One percent, and two milliseconds."""
    assert CLOCK_DRIFT_FACTOR == 0.01
    assert EXPIRY_PRECISION == 0.002


@given(moments, ttls, st.floats(0, 10), st.integers(-100, 100))
def test_a_key_outlives_the_validity_for_clocks_within_one_percent(
    asked_at: float, ttl: float, latency: float, permille: int
) -> None:
    """A key stored after the question lives past `valid_until`, on a node clock up to 1 % fast or slow
    (A1).
    """
    rate = 1 + Fraction(permille, 10_000)
    whole_milliseconds = math.ceil(ttl * 1000)
    expiry = Fraction(asked_at) + Fraction(latency) + Fraction(whole_milliseconds, 1000) / rate
    assert expiry >= Fraction(valid_until(asked_at, ttl)) - 2 * Fraction(math.ulp(asked_at + ttl))


@pytest.mark.parametrize(
    ("ttl", "node_timeout", "grace", "expected"),
    [
        (10.0, 0.1, 0.5, 0.5),  # the grace is longer than two timeouts
        (10.0, 0.1, 0.0, 0.2),  # two timeouts
        (10.0, 0.5, 0.5, 1.0),
        (0.3, 0.1, 0.015, 0.15),  # at most half of the ttl
        (0.11, 0.1, 0.0, 0.055),
        (10.0, 0.1, 4.5, 4.5),
        (10.0, 9.0, 0.0, 5.0),
    ],
)
def test_the_least_validity_worth_having(
    ttl: float, node_timeout: float, grace: float, expected: float
) -> None:
    """The longer of the grace and two node timeouts, but never more than half of the ttl (R3)."""
    assert min_validity(ttl, node_timeout, grace) == pytest.approx(expected)


@given(st.floats(MIN_TTL, MAX_TTL))
def test_any_ttl_that_is_accepted_can_be_won(ttl: float) -> None:
    """Whatever the node timeout and the grace are: there are answers in time, and a win lasts long enough."""
    assert valid_until(0.0, ttl) > min_validity(ttl, node_timeout=ttl, grace=ttl)


# -- when enough nodes will be free ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "quorum", "expected"),
    [
        ([3.0, 1.0, 2.0], 2, 2.0),  # the second key to expire frees the second node
        ([5.0, 5.0, 0.0, 0.0, 1.0], 3, 1.0),
        ([None, 2.0, 1.0], 2, 2.0),  # the key without expiry is not needed
        ([None, None, 1.0], 2, None),  # two keys without expiry are in the way: it is unknown
        ([4.0, 1.0], 3, None),  # too few answered to name a moment
    ],
)
def test_free_after_by_table(waits: list[float | None], quorum: int, expected: float | None) -> None:
    """The moment at which the Q-th node becomes free."""
    assert free_after(waits, quorum) == expected
