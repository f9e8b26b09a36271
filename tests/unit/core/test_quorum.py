"""Votes, majority, verdicts: every sequence of votes, against a twin that tries all that may still come."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

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
    ends: set[tuple[int, int]] = set()
    for vote in Vote:
        # The order of votes tells nothing; sorted, the cache stays small.
        ends |= endings(size, tuple(sorted((*votes, vote), key=lambda vote: vote.value)))
    return frozenset(ends)


def twin_verdict(size: int, votes: Votes) -> Verdict:
    """WON iff every ending is a win, LOST iff none is, else PENDING."""
    wins = [more_than_half(granted, size) for granted, _ in endings(size, votes)]
    if all(wins):
        return Verdict.WON
    return Verdict.PENDING if any(wins) else Verdict.LOST


def twin_end(size: int, granted: int, refused: int) -> Extension:
    """Say what an extension round is when all nodes have been heard."""
    if more_than_half(granted, size):
        return Extension.EXTENDED
    return Extension.LOST if more_than_half(refused, size) else Extension.UNKNOWN


def twin_extension(size: int, votes: Votes) -> Extension:
    """Say what all endings agree on; PENDING while they do not."""
    ends = {twin_end(size, *ending) for ending in endings(size, votes)}
    return ends.pop() if len(ends) == 1 else Extension.PENDING


def twin_taken(size: int, votes: Votes) -> bool | None:
    """Say whether more than half answer at all, in every ending, in none, or (None) in some."""
    answered = {more_than_half(sum(ending), size) for ending in endings(size, votes)}
    return answered.pop() if len(answered) == 1 else None


# -- every sequence of votes -------------------------------------------------------------------------


def sequences(size: int) -> Iterator[Votes]:
    """Yield every sequence of votes over `size` nodes that is complete."""
    return itertools.product(Vote, repeat=size)


def tally_of(size: int, votes: Votes) -> Tally:
    """Cast the votes one after the other."""
    tally = Tally(size)
    for vote in votes:
        tally.cast(vote)
    return tally


@pytest.mark.parametrize("size", SIZES)
def test_a_verdict_is_given_as_soon_as_it_is_certain_and_not_before(size: int) -> None:
    """After every vote of every round the verdict is the one on which all possible endings agree (R4)."""
    assert tally_of(size, ()).verdict is twin_verdict(size, ())
    for votes in sequences(size):
        tally = Tally(size)
        for cast in range(1, size + 1):
            verdict = tally.cast(votes[cast - 1])
            assert verdict is tally.verdict is twin_verdict(size, votes[:cast]), votes[:cast]
        assert tally.verdict is not Verdict.PENDING


@pytest.mark.parametrize("size", SIZES)
def test_an_extension_is_decided_as_soon_as_it_is_certain_and_not_before(size: int) -> None:
    """Renewed, lost, unknown or still open: what all possible endings agree on (R8)."""
    for length in range(size + 1):
        for votes in itertools.product(Vote, repeat=length):
            assert extension_verdict(tally_of(size, votes)) is twin_extension(size, votes), votes


@pytest.mark.parametrize("size", SIZES)
def test_contention_is_told_from_silence_as_soon_as_it_is_certain(size: int) -> None:
    """`taken` says whether a majority answers at all, and is None while that may go either way."""
    for length in range(size + 1):
        for votes in itertools.product(Vote, repeat=length):
            assert tally_of(size, votes).taken is twin_taken(size, votes), votes


@pytest.mark.parametrize("size", SIZES)
def test_a_verdict_never_changes_once_it_is_given(size: int) -> None:
    """Votes that come after the verdict cannot turn it."""
    for votes in sequences(size):
        tally, extension = Tally(size), Extension.PENDING
        seen = Verdict.PENDING
        for vote in votes:
            verdict = tally.cast(vote)
            assert seen in (Verdict.PENDING, verdict), votes
            assert extension in (Extension.PENDING, extension_verdict(tally)), votes
            seen, extension = verdict, extension_verdict(tally)


@pytest.mark.parametrize("size", SIZES)
def test_the_order_of_votes_does_not_matter(size: int) -> None:
    """Two rounds with the same votes in another order end alike."""
    for votes in itertools.combinations_with_replacement(Vote, size):
        ends = {tally_of(size, order).verdict for order in set(itertools.permutations(votes))}
        assert len(ends) == 1, votes


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
    ("size", "quorum"),
    [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)],
)
def test_the_majority_is_the_least_number_that_is_more_than_half(size: int, quorum: int) -> None:
    """Q is read from a table, and the tally uses the same Q."""
    assert majority(size) == Tally(size).quorum == quorum
    assert more_than_half(quorum, size)
    assert not more_than_half(quorum - 1, size)


@pytest.mark.parametrize("size", range(1, 10))
def test_any_two_majorities_share_a_node(size: int) -> None:
    """Every pair of sets of Q nodes overlaps, and some pair of smaller sets does not: Q is the least."""

    def sets(count: int) -> list[int]:
        return [sum(1 << node for node in chosen) for chosen in itertools.combinations(range(size), count)]

    quorum = majority(size)
    assert all(one & other for one, other in itertools.product(sets(quorum), repeat=2))
    assert not all(one & other for one, other in itertools.product(sets(quorum - 1), repeat=2))


@pytest.mark.parametrize("size", [0, -1])
def test_no_nodes_are_no_quorum(size: int) -> None:
    """Zero nodes cannot agree on anything: an error that shows the number."""
    with pytest.raises(ValueError, match=str(size)):
        majority(size)
    with pytest.raises(ValueError, match=str(size)):
        Tally(size)


def test_a_tally_counts_each_kind_of_vote() -> None:
    """The numbers are what was cast, and `pending` is what is left."""
    tally = tally_of(5, (GRANTED, REFUSED, SILENT, GRANTED))
    assert (tally.granted, tally.refused, tally.silent) == (2, 1, 1)
    assert (tally.answered, tally.pending) == (3, 1)


def test_more_votes_than_nodes_are_a_mistake() -> None:
    """A node that votes twice trips the assertion instead of making a majority."""
    tally = tally_of(3, (GRANTED, REFUSED, SILENT))
    with pytest.raises(AssertionError, match="more votes than nodes"):
        tally.cast(GRANTED)


def test_a_tally_shows_its_state() -> None:
    """`repr` has the counts and the verdict."""
    assert repr(tally_of(3, (GRANTED, SILENT))) == "<Tally 1 granted, 0 refused, 1 silent of 3: pending>"
