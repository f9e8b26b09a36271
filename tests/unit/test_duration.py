"""Durations as people write them."""

from __future__ import annotations

import pytest

from aioredlock_ng._settings.options import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10.0), ("0.5", 0.5), (".5", 0.5), ("1e3", 1000.0), ("0", 0.0), ("90s", 90.0), ("5m", 300.0),
        ("1h30m", 5400.0), ("1.5h", 5400.0), ("1d", 86400.0), ("250ms", 0.25), ("1m2s3ms", 62.003),
        ("5m5ms", 300.005), ("0s", 0.0),
    ],
)  # fmt: skip
def test_what_is_written_and_what_it_means(text: str, seconds: float) -> None:
    """Numbers are seconds; units may be put together, the longer ones first."""
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "m", "5 m", "5M", "30m1h", "5m5m", "5m1", "1h-5m", "-1", "-5m", "nan", "inf", "٣m",
     "1_0m", "5x", "5ms1s", "1,5h", "1.h"],
)  # fmt: skip
def test_what_is_no_duration_is_shown(text: str) -> None:
    """With what would be right."""
    with pytest.raises(ValueError, match="such as 90s, 5m or 1h30m") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
