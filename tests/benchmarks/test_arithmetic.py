"""The arithmetic behind the benchmarks' figures."""

from __future__ import annotations

import pytest

from benchmarks.cycles import rate
from benchmarks.driver import Figures, TroubleError, take_turns
from benchmarks.guard import Limit
from benchmarks.micro import parts


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
    """`benchmarks.micro` follows the code."""
    parts()[part]()
