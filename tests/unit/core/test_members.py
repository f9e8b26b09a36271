"""Which servers may vote beside those that other clients use, and which are another list's (R12c)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.members import USED, Member, late, read_members, strangers
from aioredlock_ng._core.quorum import majority

SECONDS = 6.0


def member(identity: str, there: float, answered: float) -> Member:
    """Return a server that another client has reported."""
    return Member(identity.encode(), USED, there, answered, there, 0, b"them")


def held(used: str, voting: str, *, size: int = 3) -> str:
    """Return which servers may not vote, of one letter each."""
    return "".join(sorted(late(set(used), set(voting), size=size, quorum=majority(size))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "voting", "late_ones"),
    [
        ("abx", "aby", "y"),
        ("ab", "aby", ""),
        ("abxy", "aby", ""),
        ("", "ab", ""),
        ("ab", "ay", "y"),
        ("ab", "ab", ""),
        ("abc", "ab", ""),
    ],
    ids=[
        "another list",
        "a new one",
        "both in use",
        "a first use",
        "one unreached",
        "the usual",
        "restarting",
    ],
)
def test_a_server_that_is_not_used_has_no_vote_beside_too_many_that_are(
    used: str, voting: str, late_ones: str
) -> None:
    """A node that is not reached may know of one more; those that are in use go on in any case."""
    assert held(used, voting) == late_ones


def test_a_list_of_five_goes_on_with_a_dead_node() -> None:
    """One that was restarted votes again, after its quarantine, although another one is dead."""
    assert held("abc", "abcd", size=5) == ""
    assert held("abcd", "abcy", size=5) == "y"


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=3, max_size=3), min_size=2, max_size=4),
    st.permutations(range(4)),
)
def test_whatever_the_lists_two_majorities_meet(lists: list[set[str]], order: list[int]) -> None:
    """Of clients that begin one after the other, and have heard of the servers that are in use."""
    used: set[str] = set()
    allowed = []
    for number in order:
        if number < len(lists):
            may = lists[number] - set(held("".join(used), "".join(lists[number])))
            allowed.append(may)
            used |= may if len(may) >= 2 else set()
    for one, other in itertools.combinations(allowed, 2):
        assert len(one) < 2 or len(other) < 2 or one & other or len(one | other) < 4


def found(told: list[Member], own: list[tuple[float, float]], places: int = 0) -> str:
    """Return which servers cannot have been in a place of the list."""
    return b"".join(one.identity for one in strangers(told, own, places=places, seconds=SECONDS)).decode()


def test_a_server_that_was_followed_by_another_is_no_stranger() -> None:
    """They were there together for a moment at most: an old master goes on until it hears of the new one."""
    own = [(0.0, 100.0), (0.0, 100.0), (50.0, 100.0)]
    assert found([member("c", 0, 49.9)], own) == ""
    assert found([member("c", 0, 55.9)], own) == ""
    assert found([member("x", 0, 56.1)], own) == "x"
    # The other way round: this client has not noticed so far that its own server is gone.
    assert found([member("c", 50, 100)], [(0.0, 100.0), (0.0, 50.0)]) == ""


def test_a_node_that_is_not_reached_may_be_each_of_its_servers() -> None:
    """Whatever happened to it; but not two servers that were there at once."""
    own = [(0.0, 100.0), (0.0, 100.0)]
    restarted = [member("b", 0, 30), member("c", 31, 60), member("d", 61, 99)]
    assert found(restarted, own, places=1) == ""
    assert found([*restarted, member("x", 0, 99)], own, places=1) == "bcdx"


def test_a_server_of_which_two_nodes_tell_has_been_there_since_the_first_moment() -> None:
    """In either order; its label is that of the client that has used it last."""
    one = member("a", 5, 90)._replace(told_since=7.0, since_ms=7000, label=b"one")
    other = member("a", 6, 95)._replace(told_since=6.0, since_ms=6000, label=b"other")
    both = Member(b"a", USED, 5, 95, 6.0, 6000, b"other")
    assert one.merged(other) == other.merged(one) == both


def test_lines_that_are_none_are_left_out() -> None:
    """Another program may have written there; and clients of another size are not of this quorum."""
    lines = b"3:one u 100 500 900 us: a label\nnonsense\n3:two x 3 4 5 them\n5:four u 1 2 3 them\n"
    lines += b"3:three n 7 8 2000 \n"
    lines += b"3:five u %b 3 4 them\n" % (b"9" * 5000)
    assert read_members(lines, now_ms=1000, asked_at=10.0, size=3) == (
        Member(b"one", USED, pytest.approx(9.1), pytest.approx(9.9), pytest.approx(9.5), 500, b"us: a label"),
        Member(b"three", b"n", pytest.approx(9.007), 10.0, pytest.approx(9.008), 8, b""),
    )
