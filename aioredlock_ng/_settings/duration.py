"""Parses durations as people write them: on the command line, and in environment variables."""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""Seconds, the longest first."""

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
"""A number and its unit."""

_SHOWN: Final = 40
"""Characters of a wrong text that a message repeats."""

FORMS: Final = "a number of seconds, or one with units, such as 90s, 5m or 1h30m"
"""The accepted forms, for messages."""


def parse_duration(text: str) -> float:
    """Return a duration in seconds: ``0.5``, ``90s``, ``5m``, ``1h30m``, ``250ms``.

    Units are d, h, m, s and ms, each once at most, the longer ones first.

    Raises:
        ValueError: the text is no duration, is below 0, or is not finite.
    """
    try:
        result = float(text)
    except ValueError:
        result = _with_units(text)
    if not 0 <= result < math.inf:
        raise ValueError(f"a duration is {FORMS}, got {text[:_SHOWN]!r}")
    return result


def _with_units(text: str) -> float:
    """Return the sum of the parts; NaN when the text has anything else in it."""
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII):
        return math.nan
    parts = _PART.findall(text)
    # A unit twice, or a shorter one before a longer one: more likely a mistake than meant.
    order = [list(_UNITS).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        return math.nan
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
