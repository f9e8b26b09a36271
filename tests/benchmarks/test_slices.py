"""What the benchmarks measure in one turn: by peers whose figures are known beforehand, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from aioredlock_ng.testing import SimLoop
from benchmarks import slices
from benchmarks.peers import Body
from benchmarks.peers.asyncio_lock import Peer as AsyncioLock


class Slow:
    """Takes 10 ms to acquire and 5 ms to release, one cycle after the other; the first may stall."""

    def __init__(self, stall: float = 0.0) -> None:
        self._one = asyncio.Lock()
        self._stall = stall

    async def cycle(self, name: str, body: Body) -> None:
        """Do one, at its turn."""
        async with self._one:
            stall, self._stall = self._stall, 0.0
            await asyncio.sleep(0.01 + stall)
            await body()
            await asyncio.sleep(0.005)


def simulated(monkeypatch: pytest.MonkeyPatch, make: Coroutine[object, object, slices.Figures]):
    """Run a slice on virtual time and return its figures."""
    monkeypatch.setattr(slices, "clock", lambda: asyncio.get_running_loop().time())
    return SimLoop.run(make)


def test_latency(monkeypatch):
    """A latency slice tells the acquire from the whole cycle, and ends with its count or its time."""

    async def run() -> slices.Figures:
        return await slices.latency(Slow(), prefix="a", count=5, seconds=0.04)

    figures = simulated(monkeypatch, run())
    assert figures["acquires"] == pytest.approx([0.01] * 3)
    assert figures["cycles"] == pytest.approx([0.015] * 3)  # the third ends beyond 40 ms


def test_throughput(monkeypatch):
    """A throughput slice counts every cycle against the time until the last one ended."""

    async def run() -> slices.Figures:
        return await slices.throughput(Slow(), prefix="a", tasks=4, seconds=0.06)

    figures = simulated(monkeypatch, run())
    assert figures["done"] == 7  # four begin at once, and one more at 15, 30 and 45 ms, but none at 60
    assert figures["rate"] == pytest.approx(1 / 0.015)


def test_open_loop_counts_from_the_intended_start(monkeypatch):
    """One stall of a second delays all requests that were due meanwhile, and each one's time shows it."""

    async def run() -> slices.Figures:
        return await slices.open_loop(Slow(stall=1.0), prefix="a", rate=10, seconds=1.0, seed=None)

    times = simulated(monkeypatch, run())["times"]
    # The first is due at 0.1 and done at 1.115; the others, due every 0.1 s, follow every 15 ms.
    assert times == pytest.approx(sorted(1.115 + 0.015 * i - 0.1 * (i + 1) for i in range(9)))


def test_hot_name_is_fair_under_a_plain_lock(monkeypatch):
    """Under a plain lock 20 tasks take turns: all but the first ones wait for the 19 others."""

    async def run() -> slices.Figures:
        at = asyncio.get_running_loop().time() + 1
        return await slices.hot(AsyncioLock([]), name="a", tasks=20, seconds=1.0, section=0.01, at=at)

    figures = simulated(monkeypatch, run())
    assert figures["rate"] == pytest.approx(100, abs=1)
    assert figures["waits"][-1] == pytest.approx(0.19)
    assert figures["waits"][30] == pytest.approx(0.19)
