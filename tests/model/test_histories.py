"""TLC explains the histories of simulated runs, and does not explain what a lock must never do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.histories import NameHistory, elections, simulated, unexplained
from tests.simulation.history import Claim

SEEDS = 24


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("crowded", [False, True])
def test_what_was_simulated_is_explained(folder: Path, crowded: bool) -> None:
    """By a lock that is a single thing: exclusion, and fences in the order in which it was taken."""
    histories = list(simulated(range(SEEDS // (4 if crowded else 1)), crowded=crowded))
    assert sum(len(one.claims) for one in histories) > 10 * SEEDS
    assert [one.origin for one in unexplained(histories, folder)] == []


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_elections_are_explained(folder: Path) -> None:
    """Terms by a lock that is a single thing; and observers hear of what was won, never going back."""
    histories = list(elections(range(4)))
    assert sum(len(one.reports) for one in histories) > 40
    assert [one.origin for one in unexplained(histories, folder)] == []


def claim(asked: float, since: float, until: float, fence: int | None, **others: object) -> Claim:
    """Return a lease that was asked for, won and left at these moments."""
    lease = Claim(
        client=0,
        task=0,
        names=("a",),
        owner=b"%f" % asked,
        fence=fence,
        asked=asked,
        since=since,
        until=until,
        stopped=until,
    )
    return replace(lease, **others)  # type: ignore[arg-type]


FIRST, SECOND = claim(0, 1, 2, 10), claim(1, 3, 4, 20)
WRITER = claim(0, 1, 2, 10, mode="write", owner=b"w")
WEAKER = claim(0, 2, 5, 10, mode="read", owner=b"w")
READER = claim(2, 3, 6, 11, mode="read")


CASES: dict[str, tuple[bool, NameHistory]] = {
    "one after the other": (True, NameHistory("", (FIRST, SECOND), ((1.0, 1, 10), (3.5, 1, 20)))),
    "two at once": (False, NameHistory("", (FIRST, replace(SECOND, since=1.9)))),
    "a fence that falls": (False, NameHistory("", (FIRST, replace(SECOND, fence=9)))),
    "a writer that becomes a reader": (True, NameHistory("", (WRITER, WEAKER, READER))),
    "a reader with a writer's fence": (False, NameHistory("", (WRITER, WEAKER, replace(READER, fence=10)))),
    "heard before it was asked for": (False, NameHistory("", (FIRST, SECOND), ((0.5, 1, 20),))),
    "heard of an earlier one again": (
        False,
        NameHistory("", (FIRST, SECOND), ((3.5, 1, 20), (3.6, 1, 10))),
    ),
}


def test_what_can_be_explained(folder: Path) -> None:
    """Two at once, a fence that falls, or a term that was not won: a lock does no such thing."""
    histories = [replace(history, origin=name) for name, (_, history) in CASES.items()]
    wrong = [name for name, (explained, _) in CASES.items() if not explained]
    assert [one.origin for one in unexplained(histories, folder)] == wrong
