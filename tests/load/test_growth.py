"""Growth is found."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from aioredlock_ng._lock.local_queue import NameQueue
from tests.load.growth import FEWEST, SHORT, growing, sample

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
