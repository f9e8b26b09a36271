"""Votes, majority, verdicts: every sequence of votes, against a twin that tries all that may still come."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest

from aioredlock_ng._core.quorum import Extension, Tally, Verdict, Vote, extension_verdict, majority

GRANTED, REFUSED, SILENT = Vote.GRANTED, Vote.REFUSED, Vote.SILENT
SIZES = range(1, 8)

Votes = tuple[Vote, ...]


# -- the dumb twin: it knows no majority and no shortcut, it looks at every way a round can end ------


def more_than_half(count: int, size: int) -> bool:
    """Say whether `count` of `size` is more than half, in the plainest words."""
    return count > size - count


@functools.cache
def endings(size: int, votes: Votes) -> frozenset[tuple[int, int]]:
    """Return (granted, refused) of every way in which a round that began with `votes` can end."""
    if len(votes) == size:
        return frozenset({(votes.count(GRANTED), votes.count(REFUSED))})
    # The order of votes tells nothing; sorted, the cache stays small.
    further = (tuple(sorted((*votes, vote), key=lambda vote: vote.value)) for vote in Vote)
    return frozenset().union(*(endings(size, more) for more in further))


def certain(size: int, votes: Votes, end: Callable[[int, int], object], otherwise: object) -> object:
    """Return on what all endings agree, each as `end` sees it."""
    ends = {end(*ending) for ending in endings(size, votes)}
    return ends.pop() if len(ends) == 1 else otherwise


def check_twins(size: int, votes: Votes) -> None:
    """Fail unless the tally says of these votes what all that may still come agree on."""
    tally = tally_of(size, votes)

    def verdict(granted: int, _: int) -> Verdict:
        return Verdict.WON if more_than_half(granted, size) else Verdict.LOST

    def extension(granted: int, refused: int) -> Extension:
        if more_than_half(granted, size):
            return Extension.EXTENDED
        return Extension.LOST if more_than_half(refused, size) else Extension.UNKNOWN

    assert tally.verdict is certain(size, votes, verdict, Verdict.PENDING), votes
    assert extension_verdict(tally) is certain(size, votes, extension, Extension.PENDING), votes
    taken = certain(size, votes, lambda granted, refused: more_than_half(granted + refused, size), None)
    assert tally.taken is taken, votes


# -- every sequence of votes -------------------------------------------------------------------------


def tally_of(size: int, votes: Votes) -> Tally:
    """Cast the votes one after the other."""
    tally = Tally(size)
    for vote in votes:
        tally.cast(vote)
    return tally


@pytest.mark.parametrize("size", SIZES)
def test_a_verdict_is_given_as_soon_as_it_is_certain_and_not_before(size: int) -> None:
    """After every vote of every round the verdict is the one on which all possible endings agree (R4); so is
    what an extension comes to (R8), and whether a majority answers at all.  So none of them ever changes.
    """
    for length in range(size + 1):
        for votes in itertools.product(Vote, repeat=length):
            check_twins(size, votes)
            assert length == 0 or tally_of(size, votes[:-1]).cast(votes[-1]) is tally_of(size, votes).verdict


def test_silence_is_neither_a_grant_nor_a_refusal() -> None:
    """Nodes that say nothing win no lock and lose no lease (R1)."""
    for size in SIZES:
        tally = tally_of(size, (SILENT,) * size)
        assert tally.verdict is Verdict.LOST
        assert tally.taken is False
        assert extension_verdict(tally) is Extension.UNKNOWN


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_an_even_tie_is_lost(size: int) -> None:
    """Half of the nodes is no majority, whatever the other half says."""
    half = (GRANTED,) * (size // 2)
    for other in (REFUSED, SILENT):
        tally = tally_of(size, half + (other,) * (size // 2))
        assert tally.verdict is Verdict.LOST
        assert extension_verdict(tally) is Extension.UNKNOWN


@pytest.mark.parametrize(
    ("size", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)]
)
def test_any_two_majorities_share_a_node(size: int, quorum: int) -> None:
    """Every pair of sets of Q nodes overlaps, and some pair of smaller sets does not: Q is the least."""

    def sets(count: int) -> list[int]:
        return [sum(1 << node for node in chosen) for chosen in itertools.combinations(range(size), count)]

    assert majority(size) == Tally(size).quorum == quorum
    assert all(one & other for one, other in itertools.product(sets(quorum), repeat=2))
    assert not all(one & other for one, other in itertools.product(sets(quorum - 1), repeat=2))


@pytest.mark.parametrize("size", [0, -1])
def test_no_nodes_are_no_quorum(size: int) -> None:
    """Zero nodes cannot agree on anything: an error that shows the number."""
    for make in (majority, Tally):
        with pytest.raises(ValueError, match=str(size)):
            make(size)
