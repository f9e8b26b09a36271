"""Values that users, configuration files and mistakes hand over: of every type, at every extreme."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import strategies as st

from aioredlock_ng import ExtensionPolicy, RetryPolicy

EXTREMES = [0, -0.0, 1, -1, 5e-324, 1e-9, 0.001, 0.002, 0.003, 0.5, 86400, 86400.001, 1e308, -1e308]
EXTREMES += [2**31, 2**63, 2**64, 10**308, 10**400, -(10**400)]
EXTREMES += [float("nan"), float("inf"), float("-inf")]

# What might be a span of time, a share or a count.
numbers = st.one_of(
    st.sampled_from(EXTREMES),
    st.integers(),
    st.floats(),
    st.floats(0, 100),
    st.timedeltas(),
    st.sampled_from([timedelta.max, timedelta.min, timedelta(0), timedelta(microseconds=1)]),
)

# What is no number.
others = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.complex_numbers(),
    st.sampled_from([Decimal(5), Decimal("nan"), Fraction(1, 3), [], {}, (), object(), int, RetryPolicy()]),
    st.just(ExtensionPolicy()),
)

anything = st.one_of(numbers, others)

characters = st.one_of(st.characters(), st.sampled_from("\0\n\r\t\x1b\u2028\ud800\udcff{}*[]\\é\U0001f600٣"))
# Names, prefixes and labels.
strings = st.one_of(
    st.text(characters, max_size=20),
    st.sampled_from(["", " ", "x" * 1024, "x" * 1025, "é" * 512, "é" * 513, "fence:{x}", "{meta}", "\ud800"]),
    st.integers(1, 5000).map(lambda size: "n" * size),
)

some_strings = st.one_of(strings, strings, others)
