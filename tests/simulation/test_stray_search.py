"""A stray client beside an older quorum (R12a): a random search, and the wrong variants that it catches."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.campaign import silence
from tests.simulation.searching import first, search
from tests.simulation.stray_variants import VARIANTS
from tests.simulation.stray_world import World

FEW: Final = 2
"""Seeds that are looked at with every change."""

MANY: Final = 14
"""Seeds of the campaign in CI; raise it to search for longer."""

ENOUGH: Final = 150
"""Seeds within which every wrong variant is caught; most of them within ten."""

SOMETIMES: Final = (
    "ours held",
    "stray held",
    "ours ConfigurationError",
    "stray ConfigurationError",
    "beside an earlier holder",
    "taken back",
    "stated",
    "flush",
    "restart",
    "freeze",
    "disconnect",
)
"""What has to happen, or the search would not have looked into every corner."""


def test_a_few_runs() -> None:
    """One holder at a time, and the quorum has its nodes back at the end."""
    assert search(World, range(FEW))["ours held"] > FEW


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_many_runs() -> None:
    """The same, often; and everything that is provided for does happen."""
    counts = search(World, range(MANY))
    assert [what for what in SOMETIMES if not counts[what]] == []


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrong_variant_is_caught(variant: str) -> None:
    """A run in which the rule is missing breaks what the rule is there for."""
    make, rules = VARIANTS[variant]
    with make():
        assert first(World, rules, range(ENOUGH)) is not None


@pytest.mark.campaign
def test_one_seed_decides_everything() -> None:
    """The same seed gives the same run."""
    runs = [World(3) for _ in range(2)]
    with silence():
        for run in runs:
            run.run()
    assert runs[0].holds == runs[1].holds
    assert runs[0].counts == runs[1].counts
