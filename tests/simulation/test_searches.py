"""Searches: elections (R31, R32), fences (R10, R21), strays (R12a), first uses (R12b), lists (R12c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from tests.simulation import (
    election_world,
    fences_world,
    first_use_world,
    lists_world,
    stray_world,
    variants,
)
from tests.simulation.campaign import silence
from tests.simulation.searching import World, first, search
from tests.simulation.variants import Variants

FEW: Final = 2
"""Seeds that are run with every change."""

ENOUGH: Final = 150
"""Seeds within which every wrong variant is caught; most of them within ten."""


class Search(NamedTuple):
    """One search: its world and wrong variants, and the events that must happen in it."""

    world: Callable[[int], World]
    variants: Variants
    usual: str
    """Happens more than once in each of the first seeds."""
    decided: str
    """The attribute of a run that its seed decides, beside the counts."""
    many: int = 0
    """Seeds of the campaign; raise it to search for longer."""
    sometimes: str = ""
    """Must happen in the campaign, or the search would miss a corner; parted by commas."""


SEARCHES: Final = {
    "election": Search(election_world.World, variants.ELECTION, "heard", "heard"),
    "fences": Search(
        fences_world.World, variants.FENCES, "won", "claims", 40,
        "lock won, fair won, read won, write won, permit won, long pause, delete, cut, relapse, flush",
    ),
    "stray": Search(
        stray_world.World, variants.STRAY, "ours held", "holds", 14,
        "ours held, stray held, ours ConfigurationError, stray ConfigurationError, beside another holder, "
        "taken back, stated, flush, restart, freeze, disconnect",
    ),
    "first use": Search(
        first_use_world.World, variants.FIRST_USE, "client held", "holds", 28,
        "used at once, client held, refused, cut, restart, flush, delete, jump, replace",
    ),
    "lists": Search(
        lists_world.World, variants.LISTS, "first held", "holds", 28,
        "first held, second held, second refused, not acquired, leaves, freeze, flush, restart, disconnect",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", [pytest.param("election", marks=pytest.mark.heavy), *list(SEARCHES)[1:]])
def test_a_few_runs(kind: str) -> None:
    """No run breaks a rule of its world, and the usual happens in each."""
    counts = search(SEARCHES[kind].world, range(FEW))
    assert counts[SEARCHES[kind].usual] > FEW


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [kind for kind, one in SEARCHES.items() if one.many])
def test_many_runs(kind: str) -> None:
    """The same, often; and everything that is provided for does happen."""
    counts = search(SEARCHES[kind].world, range(SEARCHES[kind].many))
    assert [event for event in SEARCHES[kind].sometimes.split(", ") if not counts[event]] == []


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "variant"), [(kind, name) for kind, one in SEARCHES.items() for name in one.variants]
)
def test_a_wrong_variant_is_caught(kind: str, variant: str) -> None:
    """A run in which the rule is missing breaks what the rule is there for."""
    make, rules = SEARCHES[kind].variants[variant]
    with make():
        assert first(SEARCHES[kind].world, rules, range(ENOUGH)) is not None


@pytest.mark.campaign
@pytest.mark.parametrize("kind", SEARCHES)
def test_one_seed_decides_everything(kind: str) -> None:
    """The same seed gives the same run."""
    one = SEARCHES[kind]
    with silence():
        seen = [(getattr(run.run(), one.decided), run.counts) for run in (one.world(3), one.world(3))]
    assert seen[0] == seen[1]
    assert all(seen[0])
