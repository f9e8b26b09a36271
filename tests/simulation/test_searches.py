"""Searches and wrong variants: elections (R31, R32), strays (R12a), first uses (R12b), lists (R12c)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation import (
    election_variants,
    election_world,
    first_use_variants,
    first_use_world,
    lists_variants,
    lists_world,
    stray_variants,
    stray_world,
)
from tests.simulation.campaign import silence
from tests.simulation.searching import first, search

FEW: Final = 2
"""Seeds that are run with every change."""

MANY: Final = 14
"""Seeds of the campaign in CI; raise it to search for longer."""

ENOUGH: Final = 150
"""Seeds within which every wrong variant is caught; most of them within ten."""

SOMETIMES: Final = (
    "ours held", "stray held", "ours ConfigurationError", "stray ConfigurationError",
    "beside another holder", "taken back", "stated", "flush", "restart", "freeze", "disconnect",
)  # fmt: skip
"""What has to happen among stray clients, or the search would have missed a corner."""

WORLDS: Final = {
    "election": (election_world.World, "heard"),
    "stray": (stray_world.World, "holds"),
    "first use": (first_use_world.World, "holds"),
    "lists": (lists_world.World, "holds"),
}
"""What is searched, and what of a run the seed decides beside its counts."""

VARIANTS: Final = {
    "election": election_variants.VARIANTS,
    "stray": stray_variants.VARIANTS,
    "first use": first_use_variants.VARIANTS,
    "lists": lists_variants.VARIANTS,
}


@pytest.mark.heavy
def test_a_few_elections() -> None:
    """Terms grow, observers hear of what was won, and never go back."""
    counts = search(election_world.World, range(FEW))
    assert counts["heard"] > counts["resigns"] > FEW


def test_a_few_strays() -> None:
    """One holder at a time, and the quorum has its nodes back at the end."""
    assert search(stray_world.World, range(FEW))["ours held"] > FEW


def test_a_few_first_uses() -> None:
    """No lock of an earlier client is forgotten, and nodes that forgot nothing are used at once."""
    assert search(first_use_world.World, range(FEW))["client held"] > FEW


def test_a_few_lists() -> None:
    """The list that was used first goes on, and the other one has its turn when that has gone."""
    assert search(lists_world.World, range(FEW))["first held"] > FEW


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_many_lists() -> None:
    """The same, often; and everything that is provided for does happen."""
    counts = search(lists_world.World, range(2 * MANY))
    kinds = (
        "first held", "second held", "second refused", "not acquired", "leaves",
        "freeze", "flush", "restart", "disconnect",
    )  # fmt: skip
    assert [what for what in kinds if not counts[what]] == []


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_many_first_uses() -> None:
    """The same, often; and everything that is provided for does happen."""
    counts = search(first_use_world.World, range(2 * MANY))
    kinds = ("used at once", "client held", "refused", "cut", "restart", "flush", "delete", "jump", "replace")
    assert [what for what in kinds if not counts[what]] == []


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_many_strays() -> None:
    """The same, often; and everything that is provided for does happen."""
    counts = search(stray_world.World, range(MANY))
    assert [what for what in SOMETIMES if not counts[what]] == []


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "variant"), [(kind, name) for kind, variants in VARIANTS.items() for name in variants]
)
def test_a_wrong_variant_is_caught(kind: str, variant: str) -> None:
    """A run in which the rule is missing breaks what the rule is there for."""
    make, rules = VARIANTS[kind][variant]
    with make():
        assert first(WORLDS[kind][0], rules, range(ENOUGH)) is not None


@pytest.mark.campaign
@pytest.mark.parametrize("kind", WORLDS)
def test_one_seed_decides_everything(kind: str) -> None:
    """The same seed gives the same run."""
    make, what = WORLDS[kind]
    runs = [make(3) for _ in range(2)]
    with silence():
        seen = [(getattr(run.run(), what), run.counts) for run in runs]
    assert seen[0] == seen[1]
    assert all(seen[0])
