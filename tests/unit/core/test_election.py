"""An observer's conclusions (R32): tables, a dumb twin, and every small case against the truth."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest

from aioredlock_ng._core.election import (
    Leader,
    Look,
    Seen,
    confirmed,
    free_in,
    read_announcement,
    seen,
)
from aioredlock_ng._core.quorum import majority

A, B, C = (Leader(term, label) for term, label in ((4, "a"), (6, "b"), (9, "c")))


def look(text: str) -> Look:
    """Read ``held A``, ``free``, ``voteless free B``: a node's answer, with the leader announced there."""
    words = text.split()
    leaders = {"A": A, "B": B, "C": C}
    announced = leaders.get(words[-1])
    return Look("voteless" not in words, "held" in words, announced)


def after(*texts: str, size: int = 3) -> Seen | None:
    """Return what is seen after several looks; in each the nodes' answers, parted by commas."""
    state = Seen()
    for text in texts:
        known = seen(state, [look(each) for each in text.split(",")], majority(size))
        if known is None:
            return None
        state = known
    return state


@pytest.mark.parametrize(
    "answers",
    ["held A", "held A, voteless held A", "held A, voteless free, voteless free", "voteless free C"],
)
def test_too_few_votes_tell_nothing(answers: str) -> None:
    """A node without a vote may have forgotten an announcement, and a lock."""
    assert after(answers) is None
    assert after("held A, held A", answers) is None


def test_a_node_that_was_not_free_before_does_not_count_as_free() -> None:
    """Unless no term is known that may last: then there is nothing to confirm."""
    looks = {0: look("free A"), 1: look("free A"), 2: look("voteless free A")}
    assert free_in(looks) == {0, 1}
    assert [each.held for each in confirmed(Seen(), looks, {1, 2})] == [True, False, False]
    for before in (Seen(ended=A.term), Seen(newest=A, ended=B.term)):
        assert confirmed(before, looks, ()) == list(looks.values())


def dumb(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Return the same, by trying every set of Q nodes and every term."""
    voters = [each for each in looks if each.votes]
    if len(voters) < quorum:
        return None
    leaders = [leader for leader in (before.newest, *(each.announced for each in looks)) if leader]
    newest = max(leaders, key=lambda leader: leader.term, default=None)
    known = before.newest.term if before.newest else 0
    ended = before.ended
    free = False
    for nodes in itertools.combinations(voters, quorum):
        if any(node.held for node in nodes):
            continue
        free = True
        for term in (known, *(leader.term for leader in leaders)):
            if all(term <= known or (node.announced and term <= node.announced.term) for node in nodes):
                ended = max(ended, term)
    return Seen(newest, ended, free, before.tells or free or newest is not None)


def test_the_rule_and_its_dumb_twin_agree() -> None:
    """Over random answers of up to five nodes, look after look: terms, ends, and all reports
    never go back.
    """
    random = Random(1)
    leaders = [None, *(Leader(term, str(term)) for term in (1, 2, 3, 5, 8))]
    for _ in range(3000):
        size = random.choice((1, 2, 3, 4, 5))
        state, told = Seen(), 0
        for _ in range(8):
            looks = [
                Look(random.random() < 0.8, random.random() < 0.4, random.choice(leaders))
                for _ in range(random.randint(0, size))
            ]
            found = seen(state, looks, majority(size))
            assert found == dumb(state, looks, majority(size)), (state, looks)
            if found is not None:
                assert (found.ended, found.tells) >= (state.ended, state.tells)
                assert found.leader is None or found.leader.term >= max(told, found.ended + 1)
                told = found.leader.term if found.leader else told
                state = found


@pytest.mark.parametrize(
    ("value", "leader"),
    [
        (b"17:node-7", Leader(17, "node-7")), (b"17:", Leader(17, "")), (b"17:a:b", Leader(17, "a:b")),
        (b"17:\xff", Leader(17, "\ufffd")), (b"1" * 17 + b":a", None), ("٣:a".encode(), None),
        *((value, None) for value in (b"", b"17", b":a", b"-17:a", b"1.7:a", b" 17:a")),
    ],
)  # fmt: skip
def test_an_announcement_is_read_or_is_none(value: bytes, leader: Leader | None) -> None:
    """A value of another program is no term; a label that is too long is cut."""
    assert read_announcement(value) == leader
    found = read_announcement(b"1:" + "€".encode() * 900)
    assert found is not None
    assert found.holder.startswith("€" * 200)
    assert len(found.holder) <= 800
