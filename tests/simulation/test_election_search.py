"""Candidates and observers of an election (R31, R32): a random search."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.campaign import silence
from tests.simulation.election_variants import VARIANTS
from tests.simulation.election_world import World
from tests.simulation.searching import first, search

FEW: Final = 2
"""Seeds that are looked at with every change."""

ENOUGH: Final = 40
"""Seeds within which every wrong variant is caught; all of them within five."""


@pytest.mark.heavy
def test_a_few_runs() -> None:
    """Terms grow, observers are told of what was won, and never go back."""
    counts = search(World, range(FEW))
    assert counts["told"] > counts["resigns"] > FEW


@pytest.mark.campaign
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
    assert runs[0].told == runs[1].told
    assert runs[0].counts == runs[1].counts
