"""What grows is found, and what does not is not."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from aioredlock_ng._lock.local_queue import NameQueue
from tests.load.growth import FEWEST, LONG, SHORT, Tolerance, growing, sample

QUEUES = f"object {NameQueue.__name__}"


async def test_what_leaks_grows() -> None:
    """Tasks, descriptors, names in a local queue and memory: each deliberate leak shows in its own series."""
    kept: list[Any] = []
    samples = []
    for _ in range(2 * FEWEST):
        kept += [asyncio.create_task(asyncio.Event().wait()) for _ in range(8)]
        kept += [os.fdopen(os.dup(0), closefd=True) for _ in range(4)]
        for _ in range(40):
            kept.append(NameQueue())
            kept[-1].inside = []
        kept.append(b"x" * 14_000_000)
        samples.append(sample())
    for one in kept:
        end = getattr(one, "cancel", None) or getattr(one, "close", None)
        if end is not None:
            end()
    assert growing(samples, SHORT).keys() >= {"tasks", "fds", QUEUES, "rss"}


@pytest.mark.parametrize("tolerances", [LONG, SHORT], ids=["long", "short"])
def test_the_judge_compares_the_second_quarter_with_the_last(tolerances: dict[str, Tolerance]) -> None:
    """Single peaks are ignored, late beginnings are not overlooked, and steady growth is found."""
    flat = [1.0, 5.0, 9.0, 9.0, *[20.0, 20.0, 90.0, 20.0], *[20.0] * 4, *[21.0, 22.0, 20.0, 500.0]]
    assert growing([{"tasks": one} for one in flat], tolerances) == {}
    late = [{"old": 1.0}] * FEWEST + [{"old": 1.0, "new": 1000.0}] * FEWEST
    assert growing(late, tolerances).keys() == {"new"}
    with pytest.raises(AssertionError, match="too few"):
        growing(late[: FEWEST - 1], tolerances)
    steady = [{"tasks": 60.0 + i, "fds": 40.0 + i, QUEUES: 40.0 + 2 * i} for i in range(200)]
    assert growing(steady, tolerances).keys() == {"tasks", "fds", QUEUES}
