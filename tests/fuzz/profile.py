"""The number of examples: few and always the same in CI, much and at random with ``REDLOCK_FUZZ=long``."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

# Whether to look for what was not seen yet, for as long as it takes.
LONG: Final = os.environ.get("REDLOCK_FUZZ") == "long"

FACTOR: Final = 20  # examples of a long run for each one in CI

no_hurry = pytest.mark.timeout(0 if LONG else 120)  # for tests whose long runs take longer than a test may


def profile(examples: int, **more: Any) -> settings:
    """Return the settings of one test with `examples` examples in CI."""
    return settings(
        max_examples=examples * (FACTOR if LONG else 1),
        derandomize=not LONG,
        suppress_health_check=list(HealthCheck),
        **more,
    )
