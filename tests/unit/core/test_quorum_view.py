"""A client's conclusions from all its nodes' incarnation records (R12, R12a, R12c)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from aioredlock_ng._core.fencing import at
from aioredlock_ng._core.members import USED, Member
from aioredlock_ng._core.quarantine import (
    BY_INIT,
    BY_USE,
    FORMAT,
    TAKING_BACK_MS,
    Claim,
    Incarnation,
    parse,
    wait_ms,
)
from aioredlock_ng._core.quorum_view import (
    CATCHING_UP_MS,
    HEARTBEAT,
    STARTS,
    QuorumView,
)

QUARANTINE_MS = 60_000
WAIT = wait_ms(QUARANTINE_MS) / 1000
NOW_MS = 1_700_000_000_000


def stored(
    size: int,
    *,
    age_ms: int = 1000,
    how: bytes = BY_USE,
    identity: bytes = b"server",
    ready_ms: int = 0,
) -> bytes:
    """Return the incarnation record of a quorum of some size that is so old."""
    claim = Claim(born_ms=NOW_MS - age_ms, how=how, label=b"another")
    return bytes(
        Incarnation(
            identity=identity, floor=1, ready_ms=ready_ms, size=size, quarantine_ms=QUARANTINE_MS,
            claim=claim,
        )
    )  # fmt: skip


OURS = stored(5, age_ms=5000)
ORPHANED = stored(1)


def view_of(*answers: tuple[int, bytes], read_only: bool = False) -> QuorumView:
    """Return what a client of five nodes knows that was answered this, in this order, within a moment."""
    view = QuorumView(b"{meta}", 5, QUARANTINE_MS, read_only=read_only)
    for moment, (node, incarnation) in enumerate(answers):
        hear(view, node, incarnation, moment / 1000)
    return view


def hear(view: QuorumView, node: int, incarnation: bytes, moment: float) -> None:
    """Let the client hear of a node's incarnation record at a moment."""
    view.hear(node, incarnation, asked_at=moment, heard_at=moment, time_ms=NOW_MS + round(moment * 1000))


def ours_and(stray: bytes) -> QuorumView:
    """Return what a client knows of whose nodes one is another quorum's, and one was not heard."""
    return view_of((1, OURS), (2, OURS), (3, OURS), (0, stray))


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("SOOO"))))
def test_a_stray_is_taken_back_whichever_node_answers_last(order: tuple[str, ...]) -> None:
    """As soon as the client knows that it is the older one, and can reach the node."""
    answers = [(node, ORPHANED if kind == "S" else OURS) for node, kind in enumerate(order)]
    view = view_of(*answers)
    stray = order.index("S")
    assert view.may_take_back(stray)
    assert not view.in_conflict
    view.lose(stray, 0.003)
    assert not view.may_take_back(stray)


@pytest.mark.parametrize("order", list(itertools.permutations(((0, ORPHANED), (1, OURS), (2, b"")))))
def test_nothing_is_written_while_a_node_may_be_a_strays(order: tuple[tuple[int, bytes], ...]) -> None:
    """Two nodes that were not heard may show that the other quorum has to go: no conflict, and no claim."""
    view = view_of(*order)
    assert not view.in_conflict
    assert not view.may_write


# -- how far a first record is dated back (R12b) -----------------------------------------------------------


@pytest.mark.parametrize("event", ["none", "recorded", "lost"])
def test_a_record_is_dated_back_once(event: str) -> None:
    """Of a node that has been read at the first use, and did not go out of reach nor get a record since."""
    view = QuorumView(b"{meta}", 3, 60_000)
    for node, age_ms in enumerate((90_000, 70_000, 80_000)):
        assert not view.may_write
        view.hear(node, b"", asked_at=0.0, heard_at=1.0, time_ms=NOW_MS, remembers_ms=age_ms)
    view.claim()
    assert [view.dated_back_ms(node) for node in range(3)] == [70_000] * 3
    if event == "recorded":
        view.hear(1, stored(3, age_ms=0), asked_at=0.0, heard_at=2.0, time_ms=NOW_MS)
    elif event == "lost":
        view.lose(1, 0.003)
    view.hear(1, b"", asked_at=0.0, heard_at=3.0, time_ms=NOW_MS, remembers_ms=90_000)
    assert view.dated_back_ms(1) == (70_000 if event == "none" else 0)


# -- one floor for nodes that forgot together ------------------------------------------------------------


def forgot(ahead_ms: int, *, size: int = 5, form: bytes = FORMAT) -> bytes:
    """Return the incarnation of a node whose floor is so far ahead of the time."""
    known = parse(OURS)
    assert known is not None
    return form + bytes(replace(known, floor=at(NOW_MS + ahead_ms), size=size)).removeprefix(FORMAT)


@pytest.mark.parametrize(
    ("own", "other", "quarantine_ms", "lifted"),
    [
        (forgot(11_500), forgot(11_900), 0, True),
        (forgot(11_500), forgot(11_900), CATCHING_UP_MS - 1, True),
        (forgot(11_500), forgot(11_900), CATCHING_UP_MS, False),
        (forgot(11_900), forgot(11_500), 0, False),
        (forgot(9_700), forgot(11_900), 0, False),
        (forgot(11_500), forgot(11_900, size=3), 0, False),
        (forgot(11_500), forgot(11_900, form=b"9"), 0, False),
    ],
    ids=["none", "short", "in time anyway", "the greatest", "can be raised", "a stray", "another format"],
)
def test_a_node_that_forgot_is_lifted_to_the_greatest_floor(
    own: bytes, other: bytes, quarantine_ms: int, lifted: bool
) -> None:
    """As soon as its own clock allows it: no floor is further ahead than one that the node writes itself."""
    view = QuorumView(b"{meta}", 5, quarantine_ms)
    for behind_ms, waits in ((0, 0.0), (300, 0.201)):
        for node, incarnation in enumerate((own, other)):
            view.hear(node, incarnation, asked_at=0.0, heard_at=1.0, time_ms=NOW_MS - behind_ms * (node == 0))
        for later in (0.0, 0.1):
            wait: Any = pytest.approx(max(0.0, waits - later))
            assert view.lift(0, 1.0 + later) == ((at(NOW_MS + 11_900), wait) if lifted else None)


# -- a node that stays another quorum's -----------------------------------------------------------------

OLDER = stored(3, age_ms=9000)
STATED = stored(3, how=BY_INIT)


@pytest.mark.parametrize("reached", [True, False])
def test_a_conflict_lasts_while_the_node_is_out_of_reach(reached: bool) -> None:
    """There is no vote, and nothing is written, until it says otherwise; a stray use would be outwaited."""
    view = ours_and(OLDER)
    if not reached:
        view.lose(0, 0.003)
    assert view.in_conflict
    assert view.belongs_elsewhere
    assert not view.may_write
    hear(view, 0, OURS, 0.004)
    assert not view.in_conflict
    assert view.may_write


@pytest.mark.parametrize("stray", [OLDER, STATED], ids=["older", "by init"])
def test_a_node_that_was_emptied_is_the_other_quorums_for_a_moment_yet(stray: bytes) -> None:
    """Its clients claim it again, if there are any; we would have a majority without it, beside them."""
    view = ours_and(stray)
    for moment in (1.0, 2.0, 1.0 + TAKING_BACK_MS / 1000 - 0.01):
        hear(view, 0, b"", moment)
        assert view.in_conflict
        assert not view.may_write
        assert view.is_stray(0)
    view.hear(0, b"", asked_at=0.0, heard_at=1.0 + TAKING_BACK_MS / 1000, time_ms=NOW_MS + 4000)
    assert not view.in_conflict
    assert view.may_write


# -- lists that disagree (R12c) ------------------------------------------------------------------------


def told_of(identity: bytes, answered_at: float, *, state: bytes = USED, since: float = -99.0) -> Member:
    """Return a server that clients have reported, and which has been there since then."""
    return Member(identity, state, since, answered_at, since, 0, b"them")


def answers(
    view: QuorumView, node: bytes, moment: float, *members: Member, asked_at: float | None = None
) -> None:
    """Let the client hear from a server of its own whose record has given it a vote for long."""
    asked_at = moment if asked_at is None else asked_at
    view.hear(
        node,
        stored(view.size, identity=node),
        asked_at=asked_at,
        heard_at=moment,
        time_ms=NOW_MS + round(moment * 1000),
        identity=node,
        members=members,
    )


def client_of(
    nodes: bytes, *members: Member, moment: float = 1.0, size: int = 3, **options: Any
) -> QuorumView:
    """Return the view of a client whose nodes have answered, and reported servers."""
    view = QuorumView(b"{meta}", size, QUARANTINE_MS, **options)
    goes_on(view, nodes, moment, *members)
    return view


def goes_on(view: QuorumView, nodes: bytes, moment: float, *members: Member) -> None:
    """Let a client hear from its nodes again."""
    for number, node in enumerate(nodes):
        answers(view, bytes([node]), moment, *(() if number else members))


def states(view: QuorumView, moment: float) -> dict[str, str]:
    """Return which servers the client tells of, and in which states."""
    words = view.told(b"a", moment)[0].decode().split()
    found: dict[str, str] = {}
    for identity, state in zip(words[::4], words[1::4], strict=True):
        found[identity.partition(":")[2]] = found.get(identity.partition(":")[2], "") + state
    return found


@pytest.mark.parametrize(("answered_at", "forgotten"), [(5.5, False), (3.9, True)], ids=["since", "before"])
def test_an_init_forgets_the_servers_that_were_told_of_before_it(answered_at: float, forgotten: bool) -> None:
    """Of three nodes the last one that answers was initialised a second after the others."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS, read_only=True)
    for node, born_ms in ((b"a", 5000), (b"b", 5000), (b"c", 4000)):
        record = stored(3, age_ms=born_ms, how=BY_INIT, identity=node)
        other = told_of(b"x", answered_at)
        view.hear(node, record, asked_at=9.0, heard_at=9.0, time_ms=NOW_MS, identity=node, members=(other,))
    assert (view.waits_for(told_of(b"x", answered_at)) == 0) is forgotten


def test_a_client_uses_no_server_before_a_majority_has_answered() -> None:
    """It has acquired no lock, and may not know so far of the servers that others use."""
    view = QuorumView(b"{meta}", 5, QUARANTINE_MS)
    told = []
    for node in (b"a", b"b", b"c"):
        answers(view, node, 1.0)
        told.append(states(view, 1.0))
    assert told == [{"a": "n"}, {"a": "n", "b": "n"}, {"a": "u", "b": "u", "c": "u"}]


def test_a_client_tells_of_a_server_that_it_has_lost_for_as_long_as_a_lock_can_live() -> None:
    """And how long ago that one answered, so that a client that comes later counts it."""
    view = client_of(b"ab")
    view.lose(b"b", 1.5)
    end = 1.0 + WAIT + 2 * HEARTBEAT
    for moment in (2.0, end - 0.1, end):
        answers(view, b"a", moment)
        told = view.told(b"a", moment)[0].split()
        assert (b"3:b" in told) is (moment < end)
        if b"3:b" in told:
            assert int(told[told.index(b"3:b") + 3]) == round((moment - 1) * 1000)
    # It has to come first again: a and b are not used any more.
    assert states(view, end) == {"a": "w"}


def test_a_process_that_stood_still_has_used_nothing_meanwhile() -> None:
    """It goes by what its nodes have answered to: others may have come first by now."""
    view = client_of(b"abx")
    later = 1.0 + WAIT + 20
    view.pass_time(later)
    for node in (b"a", b"b", b"x"):  # the answers to what it had asked before
        answers(view, node, later, asked_at=1.5)
    assert "u" not in "".join(states(view, later).values())
    goes_on(view, b"abx", later + 0.1, *(told_of(one, later) for one in (b"a", b"b", b"y")))
    assert set(view.members.others) == {b"x"}


def test_a_client_with_a_lost_stray_node_tells_what_it_uses() -> None:
    """It takes locks with the other nodes; whose that node was matters for what it writes (R12a)."""
    view = client_of(b"ab")
    stray = stored(1, identity=b"x", age_ms=0)
    view.hear(b"x", stray, asked_at=1.0, heard_at=1.0, time_ms=NOW_MS + 1000, identity=b"x")
    view.lose(b"x", 1.5)
    assert not view.in_conflict
    assert states(view, 2.0) == {"a": "u", "b": "u"}


def test_a_client_that_runs_is_not_refused() -> None:
    """It has used its servers for 12 s; another list comes, whose servers had come first elsewhere."""
    view = client_of(b"abx")
    for half in range(3, 2 * (1 + round(STARTS * HEARTBEAT)) + 2):
        goes_on(view, b"abx", half / 2)
    y = told_of(b"y", 14.0)
    goes_on(view, b"abx", 14.0, y)
    assert [one.identity for one in view.members.strangers] == [b"y"]
    assert not view.members.disputed
    assert view.members.others == {}
    assert set(states(view, 14.0).values()) == {"u"}


def test_a_client_with_the_list_of_others_is_not_refused() -> None:
    """There is one with another list, too: that one came later, or runs."""
    view = client_of(b"abx", *(told_of(one, 0.9) for one in (b"a", b"b", b"x", b"y")))
    assert not view.members.disputed
    assert [one.identity for one in view.members.strangers] == [b"y"]
    assert view.members.others == {}
