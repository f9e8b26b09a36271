"""What the servers themselves can tell."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from redis import Redis


def cpu_of(urls: Sequence[str]) -> float:
    """Return the seconds of CPU that the servers have used."""
    used = 0.0
    for url in urls:
        with Redis.from_url(url) as client:
            info: Any = client.info("cpu")
        used += info["used_cpu_user"] + info["used_cpu_sys"]
    return used


def round_trip(url: str, pings: int = 20) -> float:
    """Return the seconds that a PING takes, as a median."""
    took = []
    with Redis.from_url(url) as client:
        for _ in range(pings):
            began = time.perf_counter()
            client.ping()
            took.append(time.perf_counter() - began)
    return statistics.median(took)
