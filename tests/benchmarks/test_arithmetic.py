"""The arithmetic behind the benchmarks' figures."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from benchmarks.cycles import compared, rate
from benchmarks.driver import Figures, TroubleError, take_turns
from benchmarks.guard import Limit
from benchmarks.micro import parts
from benchmarks.report import percentile, why_unpublished
from benchmarks.slices import schedule


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100, 101, 1000])
def test_percentile(size):
    """A percentile is the least value that so many do not exceed, as a slow count finds it, too."""
    values = [random.Random(size).random() for _ in range(size)]
    for percent in (1, 25, 50, 75, 99, 100):
        enough = [v for v in values if sum(other <= v for other in values) >= percent / 100 * len(values)]
        assert percentile(values, percent / 100) == min(enough)


@pytest.mark.parametrize(
    ("load", "cpus", "published"), [(0.0, 1, True), (2.0, 2, True), (2.1, 2, False), (12.3, 2, False)]
)
def test_a_busy_machine_publishes_nothing(load, cpus, published):
    """Above a load of 1 per core there is a message: the load, the limit, and what to do."""
    why = why_unpublished(load, cpus)
    assert (why is None) is published
    assert published or all(part in why for part in (f"{load:.1f}", f"limit {cpus} ", "--anyway"))


def test_poisson_schedule():
    """With a seed they are due at random: the same for all peers, at the rate, unevenly."""
    assert list(schedule(4, 1.0, None)) == [0.25, 0.5, 0.75], "without a seed at equal distances"
    dues = list(schedule(1000, 10.0, 7))
    assert dues == list(schedule(1000, 10.0, 7)) != list(schedule(1000, 10.0, 8))
    assert dues == sorted(dues)
    assert dues[-1] < 10.0
    assert len(dues) == pytest.approx(10_000, rel=0.05)
    gaps = [later - earlier for earlier, later in itertools.pairwise(dues)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread == pytest.approx(mean, rel=0.1)  # of an exponential distribution they are equal


async def test_a_peer_in_trouble_has_no_more_turns():
    """A peer that gets stuck drops out with what it did; ratios are of the turns that both had."""
    rates = {"base": iter([1.0, 2.0, 4.0]), "late": iter([3.0, 6.0]), "never": iter([])}

    def turn(name: str) -> object:
        async def take() -> Figures:
            if (value := next(rates[name], None)) is None:
                raise TroubleError("> 5 s")
            return {"rate": value}

        return take

    taken = await take_turns({name: turn(name) for name in rates}, seconds=0, at_least=3)
    assert [turns.trouble for turns in taken.of.values()] == [None, "> 5 s", "> 5 s"]
    assert compared(taken, "late", rate, bases=["base"]) == {"to_base": 3.0}
    assert compared(taken, "never", rate, bases=["base"]) == {"to_base": None}
    assert compared(taken, "base", rate, bases=["unknown"]) == {}


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (Limit(of="x", peer="a", base="b", most=2.1), True),
        (Limit(of="x", peer="a", base="b", most=1.9), False),
        (Limit(of="x", peer="a", base="b", least=1.9), True),
        (Limit(of="x", peer="a", base="b", least=2.1), False),
        (Limit(of="x", peer="a", base="gone", most=9), False),
        (Limit(of="x", peer="gone", base="a", most=9), False),
        (Limit(of="x", peer="a", most=2.1), True),
        (Limit(of="x", peer="a", most=1.9), False),
        (Limit(of="x", peer="a", least=2.1), False),
        (Limit(of="x", peer="gone", most=9), False),
    ],
)
async def test_guard(limit, kept, monkeypatch):
    """The guard compares a ratio, or a count, with a limit; a peer that could not be measured breaks it."""

    async def two() -> Figures:
        return {"rate": 2.0}

    async def one() -> Figures:
        return {"rate": 1.0}

    async def stuck() -> Figures:
        raise TroubleError("> 5 s")

    monkeypatch.setitem(__import__("benchmarks.guard").guard.READ, "x", rate)
    taken = await take_turns({"a": two, "b": one, "gone": stuck}, seconds=0, at_least=1)
    assert limit.judge(taken)[0] is kept


@pytest.mark.parametrize("part", parts())
def test_each_part_of_the_core_runs(part):
    """What `benchmarks.micro` measures follows the code."""
    parts()[part]()
