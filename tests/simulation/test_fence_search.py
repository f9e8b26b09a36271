"""Fences are unique and in order whatever happens to nodes and messages (R10–R12, R21, R25): a search."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.simulation.fence_rules import UNQUARANTINED, VARIANTS
from tests.simulation.fence_search import SIZES, campaign, first, world
from tests.simulation.fence_world import Rule

RUNS: Final = 700
"""Of the shipping rules; the command line is for more."""

ENOUGH: Final = 60_000
"""Seeds within which the search finds every broken variant; most of them within a hundred runs."""

SEVERAL: Final = tuple(size for size in SIZES if size > 1)

NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "a raise that does not look at the owner": ("pause a client",),
    "no cap on the raise": ("clocks apart", "pass a long time"),
    "a floor by another node's clock": ("clocks apart", "pass a long time", "restart empty"),
    "a raise without the floor": ("relapse",),
    "an expected record that outlives its connection": ("restart with an older state",),
    "a restarted node votes at once": ("restart most",),
}
"""What a run must have so that it can find the variant; the others are skipped to save time."""

FOUND: Final = {
    "a fence that moves while nodes are raised": 1757,
    "no cap on the raise": 3832,
    "a floor by another node's clock": 8915,
    "a raise without the floor": 26510,
    "one end for all readers": 767,
    "a restarted node votes at once": 10436,
    "a count of holders at each node": 133,
    "a quorum of any slots": 130,
    "permits: a restarted node votes at once": 523,
    "the grants of any slots certify a fence": 254,
}
"""A seed in which a rare variant showed, tried first; where it does not any more, all are searched."""

OF_THREE: Final = ("a raise without the floor", "a restarted node votes at once")
"""What is looked for with three nodes alone."""

SEARCHES: Final[dict[str, tuple[Rule, dict[str, Any]]]] = {
    "mutexes": (Rule.ORDER, {"sizes": SIZES}),
    "readers": (Rule.ORDER, {"mixed": True}),
    "sharing": (Rule.EXCLUSION, {"mixed": True, "timed": True}),
    "following": (Rule.FOLLOWING, {"mixed": True}),
    "following in time": (Rule.FOLLOWING, {"mixed": True, "timed": True}),
    "permits": (Rule.EXCLUSION, {"permits": True, "timed": True}),
    "slots": (Rule.ORDER, {"permits": True}),
    "memory": (Rule.EXCLUSION, {"timed": True}),
}
"""What broken variants break, and in which runs they are looked for."""

KINDS: Final[dict[str, tuple[range, dict[str, Any], tuple[str, ...]]]] = {
    "mutexes": (
        range(RUNS),
        {},
        (
            "certified at once", "certified after a raise", "a raise was refused by the clock",
            "a raise was refused by a counter above it", "a raise came too late",
            "an attempt was lost without a certificate", "handed off", "a floor was in effect",
            "a missing counter started", "extended", "topped up", "quarantine refused a vote",
            "two holders at once",
        ),
    ),
    "readers and writers": (
        range(RUNS, 2 * RUNS),
        {"mixed": True},
        (
            "certified at once", "certified after a raise", "an attempt was lost without a certificate",
            "a raise came too late", "a raise found no vote", "readers together", "downgraded", "unchanged",
            "a fair lock won", "extended", "topped up",
        ),
    ),
    "permits": (
        range(300),
        {"permits": True},
        (
            "certified after a raise", "an attempt was lost without a certificate", "a raise came too late",
            "a stray slot given back", "permits together", "extended", "topped up",
        ),
    ),
}  # fmt: skip
"""Seeds, what is wanted in their runs, and what must happen there or they would miss a corner."""


@pytest.mark.parametrize("kind", KINDS)
def test_shipping_rules(kind):
    """No fence is made twice or out of order; in time, only those hold at once that may (R20, R24).

    Writers' fences are as a mutex's, readers' between them (R21); each slot has its own (R25); a writer is
    rightly informed of others (R23).
    """
    seeds, options, sometimes = KINDS[kind]
    found = campaign(seeds, **options)
    assert found.violations == []
    assert [event for event in sometimes if not found.events[event]] == []
    assert min(found.fences[size] for size in SIZES) > len(seeds) / len(SIZES) / 2


@pytest.mark.parametrize(
    ("search", "variant"),
    [(search, variant) for search in SEARCHES for variant in VARIANTS[search.removesuffix(" in time")]],
)
def test_broken_variant(search, variant):
    """A rule that is broken is found out, by what it breaks."""
    rule, options = SEARCHES[search]
    rules = VARIANTS[search.removesuffix(" in time")]
    narrow = search in ("mutexes", "sharing")
    known = FOUND.get(f"{search}: {variant}", FOUND.get(variant, 0))
    options = {"sizes": SEVERAL} | options | ({"sizes": (3,)} if narrow and variant in OF_THREE else {})
    needs = NEEDS.get(variant, ()) if narrow else ()
    seeds = (known, *range(ENOUGH))
    assert first(rule, seeds, rules=rules[variant], needs=needs, **options) is not None


def test_no_quarantine_keeps_the_order():
    """Without a restart quarantine the fences stay unique and in order all the same."""
    found = campaign(range(RUNS), rules=UNQUARANTINED, timed=True)
    assert {error.rule for _, error in found.violations} <= {Rule.EXCLUSION}
    assert found.events["two holders at once"] > 0


@pytest.mark.parametrize("kinds", [{}, {"mixed": True}, {"permits": True}], ids=str)
def test_one_seed_decides_everything(kinds):
    """The same seed gives the same run, step by step."""
    runs = [world(57, **kinds) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0]._won == runs[1]._won
    assert runs[0].counts == runs[1].counts
    assert runs[0].fences
