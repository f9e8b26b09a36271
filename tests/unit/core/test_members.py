"""Which servers may vote beside those that other clients use (R12c)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.members import WAITS, Member, Membership, membership, read_members, server_of
from aioredlock_ng._core.quorum import majority

ALIVE_MS = 3_000
SINCE = {b"a": 1, b"b": 1, b"c": 1, b"x": 2, b"y": 3, b"z": 4, b"w": 5}


def member(identity: bytes, *, age_ms: int = 0) -> Member:
    """Return a server that another client uses."""
    return Member(identity, SINCE.get(identity, 9), age_ms, b"them")


def judged(listed: bytes, *others: Member, voting: bytes | None = None, quorum: int = 2) -> Membership:
    """Return what a client with the list thinks, of servers of one letter each."""
    letters = [bytes([letter]) for letter in listed]
    votes = letters if voting is None else [bytes([letter]) for letter in voting]
    own = [Member(letter, SINCE[letter], 0, b"us") for letter in votes if letter in SINCE]
    return membership(
        letters,
        votes,
        [*others, *own],
        (),
        size=len(listed),
        quorum=quorum,
        alive_ms=ALIVE_MS,
    )


@pytest.mark.parametrize(
    ("listed", "others", "late", "strangers", "disputed"),
    [
        (b"abx", [member(b"y")], [], [b"y"], False),
        (b"aby", [member(b"x")], [b"y"], [b"x"], True),
        (b"abw", [member(b"x")], [b"w"], [b"x"], True),
        (b"aby", [member(b"x", age_ms=ALIVE_MS)], [b"y"], [], False),
        (b"aby", [member(b"a"), member(b"b")], [], [], False),
        (b"bya", [member(b"y")], [], [], False),
    ],
    ids=["first", "second", "by time", "has gone", "the same servers", "in another order"],
)
def test_the_list_that_was_used_first_goes_on(
    listed: bytes, others: list[Member], late: list[bytes], strangers: list[bytes], disputed: bool
) -> None:
    """The server of the other one may not vote until no lock can be alive that has the vote of the first."""
    found = judged(listed, *others)
    assert (list(found.others), [one.identity for one in found.strangers]) == (late, strangers)
    assert found.disputed is disputed


def test_a_server_that_is_replaced_is_no_disagreement() -> None:
    """The new one waits for its quarantine, and the old one is heard of no more by then."""
    assert judged(b"aby", member(b"x"), voting=b"ab") == Membership()
    assert judged(b"aby") == Membership()


def test_lists_that_share_enough_need_not_be_equal() -> None:
    """Of two nodes both are a majority, so that lists which share one exclude each other."""
    assert judged(b"ax", member(b"y")) == Membership()
    assert judged(b"abcx", member(b"y"), quorum=3) == Membership()
    assert list(judged(b"abyz", member(b"c"), member(b"x"), quorum=3).others) == [b"z"]


def test_a_server_of_the_list_that_others_use_counts_unreached() -> None:
    """It may have voted for them a moment ago: b is cut off from this client alone."""
    assert list(judged(b"aby", member(b"x"), member(b"b"), voting=b"ay").others) == [b"y"]


def test_a_server_that_was_restarted_waits_for_a_node_that_may_know_of_another() -> None:
    """One node is not reached: a client that uses another server may have told it alone."""
    used = [Member(letter, 1, age_ms, b"us") for letter, age_ms in ((b"a", 0), (b"b", 5000))]
    found = membership([b"a", b"b", b"c"], [b"a", b"c"], used, [b"c"], size=3, quorum=2, alive_ms=ALIVE_MS)
    assert (list(found.others), found.hidden, found.disputed) == ([b"c"], True, False)
    # All are reached: it votes again.
    found = membership(
        [b"a", b"b", b"c"], [b"a", b"b", b"c"], used, [b"c"], size=3, quorum=2, alive_ms=ALIVE_MS
    )
    assert found == Membership()


def test_of_servers_that_wait_each_client_puts_its_own_first() -> None:
    """Another client's may be in a list that is used no more (R12c)."""
    told = [Member(letter, WAITS, 0, b"them") for letter in (b"a", b"b", b"x")]
    found = membership(
        [b"a", b"b", b"y"], [b"a", b"b", b"y"], told, [b"a", b"b", b"y"], size=3, quorum=2, alive_ms=ALIVE_MS
    )
    assert found.others == {}


def test_a_first_use_is_possible_with_nodes_that_are_not_reached() -> None:
    """No client has used any server: there is nothing that they may be used beside."""
    assert judged(b"abx", voting=b"ab") == Membership()
    assert judged(b"abcxy", voting=b"abc", quorum=3) == Membership()


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=3, max_size=3), min_size=2, max_size=4),
    st.permutations("abcdefgh"),
)
def test_whatever_the_lists_two_majorities_meet(lists: list[set[str]], order: list[str]) -> None:
    """Clients that have heard of each other's servers exclude each other, or one of them has no majority."""
    since = {letter.encode(): position for position, letter in enumerate(order)}
    allowed = []
    for mine in lists:
        listed = [letter.encode() for letter in mine]
        heard = [
            Member(letter.encode(), since[letter.encode()], 0, b"them") for other in lists for letter in other
        ]
        found = membership(listed, listed, heard, (), size=3, quorum=majority(3), alive_ms=ALIVE_MS)
        allowed.append(set(listed) - found.others.keys())
    for one, other in itertools.combinations(allowed, 2):
        assert len(one) < 2 or len(other) < 2 or one & other or len(one | other) < 4


def test_lines_that_are_none_are_left_out() -> None:
    """Another program may have written there; and clients of another size are not of this quorum."""
    lines = b"3:one 5 900 us: a label\nnonsense\n3:two x 3 them\n5:four 1 2 them\n3:three 7 2000 \n"
    lines += b"3:five %b 3 them\n" % (b"9" * 5000)
    assert read_members(lines, 1000, size=3) == (
        Member(b"one", 5, 100, b"us: a label"),
        Member(b"three", 7, 0, b""),
    )


def test_an_identity_is_shown_without_control_characters() -> None:
    """Whoever may write there must not write to a terminal."""
    assert server_of(Member(b"\x1b[31m\x07", 1, 0, b"them")).startswith(r"the one with run_id \x1b[31m\x07 (")
