"""What a client makes of all its nodes' incarnation records together: when its quorum is closed (R12a)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from aioredlock_ng._core.fencing import at
from aioredlock_ng._core.members import NOT_USED, WAITS, Member, Membership
from aioredlock_ng._core.members import pace as pace_of
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
from aioredlock_ng._core.quorum_view import CATCHING_UP_MS, LONGEST_CLOSED_MS, MAX_SERVERS, QuorumView

QUARANTINE_MS = 60_000
WAIT = wait_ms(QUARANTINE_MS) / 1000
NOW_MS = 1_700_000_000_000


def stored(
    size: int,
    *,
    age_ms: int = 1000,
    how: bytes = BY_USE,
    closed_ms: int = 0,
    identity: bytes = b"server",
    ready_ms: int = 0,
) -> bytes:
    """Return the incarnation record of a quorum of some size that is so old."""
    claim = Claim(born_ms=NOW_MS - age_ms, how=how, label=b"another")
    return bytes(
        Incarnation(
            identity=identity, floor=1, ready_ms=ready_ms, size=size, quarantine_ms=QUARANTINE_MS,
            closed_ms=closed_ms, claim=claim,
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
    view.hear(node, incarnation, heard_at=moment, time_ms=NOW_MS + round(moment * 1000))


def ours_and(stray: bytes) -> QuorumView:
    """Return what a client knows of whose nodes one is another quorum's, and one was not heard."""
    return view_of((1, OURS), (2, OURS), (3, OURS), (0, stray))


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("SOOO"))))
def test_a_stray_closes_the_quorum_whichever_node_answers_last(order: tuple[str, ...]) -> None:
    """As soon as the client knows that it is the older one, and also if the node is out of reach then."""
    answers = [(node, ORPHANED if kind == "S" else OURS) for node, kind in enumerate(order)]
    view = view_of(*answers)
    stray = order.index("S")
    assert view.may_take_back(stray)
    assert view.closed_for(0.003) == pytest.approx(WAIT, abs=0.01)
    view.lose(stray, 0.003)
    assert not view.may_take_back(stray)
    assert view.closed_for(0.003) == pytest.approx(WAIT, abs=0.01)


def test_a_stray_that_went_before_the_majority_came() -> None:
    """What was seen stays true, when the node is out of reach before it is known whose it is."""
    view = view_of((0, ORPHANED), (1, OURS), (2, OURS))
    assert not view.closed_for(0.003)
    view.lose(0, 0.003)
    hear(view, 3, OURS, 0.003)
    assert view.closed_for(0.003) == pytest.approx(WAIT, abs=0.01)


def test_a_client_that_begins_to_take_part_is_closed_at_once() -> None:
    """Not when the stray node answers the next time: it may not."""
    view = view_of((0, ORPHANED), (1, OURS), (2, OURS), (3, OURS), read_only=True)
    assert not view.closed_for(0.003)
    view.take_part()
    assert view.closed_for(0.003) == pytest.approx(WAIT, abs=0.01)


@pytest.mark.parametrize("flushed", ["while it was a stray's", "after it was taken back"])
def test_what_a_node_forgets_stays_true(flushed: str) -> None:
    """Emptied and claimed anew it knows of no wait any more; leases on the stray's other nodes live."""
    for how in (BY_USE, BY_INIT):
        ours = stored(5, age_ms=5000, how=how)
        view = view_of((1, ours), (2, ours), (3, ours), (0, ORPHANED))
        if flushed == "after it was taken back":
            taken = stored(5, age_ms=5000, how=how, closed_ms=NOW_MS + 100_000)
            hear(view, 0, taken, 0.004)
        before = view.closed_for(0.005)
        assert before >= WAIT - 0.01
        hear(view, 0, b"", 0.005)
        hear(view, 0, ours, 0.006)
        assert view.closed_for(0.005) == pytest.approx(before), how


@pytest.mark.parametrize("seen", ["stray", "taken", "empty"])
def test_an_init_ends_it(seen: str) -> None:
    """An operator has stated that no lock can be alive, since the node was heard last."""
    view = ours_and(ORPHANED)
    if seen != "stray":
        taken = stored(5, age_ms=5000, closed_ms=NOW_MS + 100_000)
        hear(view, 0, taken, 0.004)
    if seen == "empty":
        hear(view, 0, b"", 0.005)
    hear(view, 0, stored(5, age_ms=-6, how=BY_INIT), 0.007)
    assert not view.closed_for(0.007)


def test_a_clock_that_went_back_closes_it_for_a_day_at_most() -> None:
    """Not for the fifty years that lie between 1970 and the end of the wait."""
    taken = stored(5, age_ms=5000, closed_ms=NOW_MS)
    view = QuorumView(b"{meta}", 5, QUARANTINE_MS)
    view.hear(0, taken, heard_at=0.0, time_ms=1)
    assert view.closed_for(0.0) == LONGEST_CLOSED_MS / 1000 < 90_000


@pytest.mark.parametrize("order", list(itertools.permutations(((0, ORPHANED), (1, OURS), (2, b"")))))
def test_nothing_is_written_while_a_node_may_be_a_strays(order: tuple[tuple[int, bytes], ...]) -> None:
    """Two nodes that were not heard may show that the other quorum has to go: no conflict, and no claim."""
    view = view_of(*order)
    assert not view.conflict
    assert not view.may_write


@pytest.mark.parametrize(
    "claims",
    [[(9000, BY_USE), (5000, BY_USE)], [(5000, BY_INIT), (9000, BY_USE)], [(9000, BY_INIT), (5000, BY_INIT)]],
    ids=["older use", "init before use", "older init"],
)
@pytest.mark.parametrize("last", [0, 1])
def test_the_claim_of_a_quorum_is_the_highest_of_its_nodes(
    claims: list[tuple[int, bytes]], last: int
) -> None:
    """Whichever is heard last: it is what is written, and what decides who takes a node back."""
    heard = [*enumerate(stored(5, age_ms=age, how=how) for age, how in claims)]
    claim = view_of(heard[1 - last], heard[last]).claim()
    assert (claim.born_ms, claim.how) == (NOW_MS - claims[0][0], claims[0][1])


# -- how far a first record is dated back (R12b) -----------------------------------------------------------


@pytest.mark.parametrize("event", ["none", "recorded", "lost"])
def test_a_record_is_dated_back_once(event: str) -> None:
    """Of a node that has been read at the first use, and did not go out of reach nor get a record since."""
    view = QuorumView(b"{meta}", 3, 60_000)
    for node, age_ms in enumerate((90_000, 70_000, 80_000)):
        assert not view.may_write
        view.hear(node, b"", heard_at=1.0, time_ms=NOW_MS, remembers_ms=age_ms)
    view.claim()
    assert [view.dated_back_ms(node) for node in range(3)] == [70_000] * 3
    if event == "recorded":
        view.hear(1, stored(3, age_ms=0), heard_at=2.0, time_ms=NOW_MS)
    elif event == "lost":
        view.lose(1, 0.003)
    view.hear(1, b"", heard_at=3.0, time_ms=NOW_MS, remembers_ms=90_000)
    assert view.dated_back_ms(1) == (70_000 if event == "none" else 0)


def test_a_view_that_has_heard_no_node_judges_none() -> None:
    """A manager that only read so far takes part before a node has answered."""
    view = QuorumView(b"{meta}", 3, 60_000, read_only=True)
    view.take_part()
    assert not view.may_write


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
            view.hear(node, incarnation, heard_at=1.0, time_ms=NOW_MS - behind_ms * (node == 0))
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
    assert view.conflict
    assert view.belongs_elsewhere
    assert not view.may_write
    hear(view, 0, OURS, 0.004)
    assert not view.conflict
    assert view.may_write


@pytest.mark.parametrize("stray", [OLDER, STATED], ids=["older", "by init"])
def test_a_node_that_was_emptied_is_the_other_quorums_for_a_moment_yet(stray: bytes) -> None:
    """Its clients claim it again, if there are any; we would have a majority without it, beside them."""
    view = ours_and(stray)
    for moment in (1.0, 2.0, 1.0 + TAKING_BACK_MS / 1000 - 0.01):
        hear(view, 0, b"", moment)
        assert view.conflict
        assert not view.may_write
        assert view.is_stray(0)
    view.hear(0, b"", heard_at=1.0 + TAKING_BACK_MS / 1000, time_ms=NOW_MS + 4000)
    assert not view.conflict
    assert view.may_write


@pytest.mark.parametrize(
    ("reached", "moment", "ends"),
    [(False, 4, True), (False, 2, False), (True, 4, False)],
    ids=["after it was heard", "before it was heard", "of the others only"],
)
def test_an_init_ends_what_a_lost_node_has_said(reached: bool, moment: int, ends: bool) -> None:
    """If it came later; one that is in reach would have been claimed by it, too."""
    view = ours_and(STATED)
    if not reached:
        view.lose(0, 0.003)
    hear(view, 1, stored(5, age_ms=-moment, how=BY_INIT), 0.005)
    assert view.conflict is not ends


@pytest.mark.parametrize(("age_ms", "forgotten"), [(3000, False), (4500, True)], ids=["since", "before"])
def test_an_init_forgets_the_servers_that_were_told_of_before_it(age_ms: int, forgotten: bool) -> None:
    """Of three nodes the last one that answers was initialised a second after the others (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS, read_only=True, heartbeat=1.0)
    other = Member(b"another server", 1, age_ms, b"another client")
    for node, born_ms, members in ((b"a", 5000, (other,)), (b"b", 5000, (other,)), (b"c", 4000, ())):
        record = stored(3, age_ms=born_ms, how=BY_INIT)
        view.hear(node, record, heard_at=9.0, time_ms=NOW_MS, identity=node, members=members)
    assert view.members.strangers == (() if forgotten else (other,))


def answers(
    view: QuorumView, node: bytes, moment: float, *members: Member, asked_at: float | None = None
) -> None:
    """Let the client hear from a server of its own whose record gives it a vote."""
    asked_at = moment if asked_at is None else asked_at
    record, time_ms = stored(view.size, identity=node), NOW_MS + round(asked_at * 1000)
    view.hear(
        node, record, asked_at=asked_at, heard_at=moment, time_ms=time_ms, identity=node, members=members
    )


def test_a_client_uses_no_server_before_a_majority_has_answered() -> None:
    """It has acquired no lock, and may not know so far of the servers that others use (R12c)."""
    view = QuorumView(b"{meta}", 5, QUARANTINE_MS, heartbeat=0.5)
    told = []
    for node in (b"a", b"b", b"c"):
        answers(view, node, 1.0)
        told.append(view.told(b"d", 1.0)[0])
    since = NOW_MS + 1000
    assert told[:2] == [b"5:a %d 0" % NOT_USED, b"5:a %d 0 5:b %d 0" % (NOT_USED, NOT_USED)]
    assert told[2] == b"5:a %d 0 5:b %d 0 5:c %d 0" % (since, since, since)


def test_a_client_tells_of_a_server_that_it_has_lost_for_as_long_as_a_lock_can_live() -> None:
    """And how long ago it used that one; what it does not use any more it has to use anew (R12c)."""
    view = QuorumView(b"{meta}", 3, 6000, heartbeat=0.5)
    for node in (b"a", b"b"):
        answers(view, node, 1.0)
    since = NOW_MS + 1000
    view.lose(b"b", 1.5)
    for tenth in range(15, 100, 5):
        moment = tenth / 10
        answers(view, b"a", moment)
        used = b"%d %d" % (since, round(moment * 1000) - 1500)
        waits = b"3:a %d 0" % WAITS
        lost = moment - 1.5 >= 6.07 + 2 * 0.5
        expected = waits if lost else b" ".join((b"3:a " + used, waits, b"3:b " + used))
        assert view.told(b"a", moment) == (expected, b"%d" % (NOW_MS + round(moment * 1000)))
    answers(view, b"b", 10.0)
    assert view.told(b"a", 10.0)[0] == b"3:a %d 0 3:b %d 0" % (NOW_MS + 9500, NOW_MS + 10_000)


def test_a_process_that_stood_still_has_used_nothing_meanwhile() -> None:
    """Others may have come first by now (R12c)."""
    view = QuorumView(b"{meta}", 3, 6000, heartbeat=0.5)
    y = Member(b"y", NOW_MS + 50_000, 0, b"them")
    for moment in (1.0, 1.5, 100.0):
        for node in (b"a", b"b", b"x"):
            answers(view, node, moment, *((y,) if moment == 100.0 and node != b"x" else ()))
    assert set(view.members.others) == {b"x"}


def used_since_one() -> tuple[QuorumView, int]:
    """Return what a client knows that uses a, b and x from 1.0 on, and that moment by the nodes' clocks."""
    view = QuorumView(b"{meta}", 3, 6000)
    for node in (b"a", b"b", b"x"):
        answers(view, node, 1.0)
    return view, NOW_MS + 1000


def test_a_process_that_stood_still_uses_nothing_until_nodes_answer() -> None:
    """What they have answered to an earlier question says nothing of the time since then (R12c)."""
    view, since = used_since_one()
    view.pass_time(1.9)
    assert view.told(b"a", 1.9)[0] == b"3:a %d 0 3:b %d 0 3:x %d 0" % (since, since, since)
    view.pass_time(20.0)
    for node in (b"a", b"b", b"x"):
        answers(view, node, 20.0, asked_at=1.8)
    assert not view.claimed
    assert view.told(b"a", 20.0)[0] == b""
    answers(view, b"b", 20.0)
    assert not view.claimed
    y = Member(b"y", NOW_MS + 5000, 0, b"them")
    for node in (b"a", b"b"):
        answers(view, node, 20.1, y)
    answers(view, b"x", 20.1)
    assert set(view.members.others) == {b"x"}


def test_a_process_that_stood_still_for_a_moment_tells_when_it_used_its_servers() -> None:
    """Others go by that, also where they have come to use another one meanwhile (R12c)."""
    view, since = used_since_one()
    view.pass_time(2.1)
    assert view.told(b"a", 2.1)[0] == b"3:a %d 1100 3:b %d 1100 3:x %d 1100" % (since, since, since)
    for node in (b"a", b"b"):
        answers(view, node, 2.1)
    told = b"3:a %d 0 3:b %d 0 3:x %d 1100" % (since, since, since)
    assert view.told(b"a", 2.1)[0] == told


def test_a_client_with_a_lost_stray_node_tells_what_it_uses() -> None:
    """It takes locks with the other nodes; whose that node was matters for what it writes (R12a, R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
    for node in (b"a", b"b"):
        answers(view, node, 1.0)
    stray = stored(1, identity=b"x", age_ms=0)
    view.hear(b"x", stray, heard_at=1.0, time_ms=NOW_MS + 1000, identity=b"x")
    view.lose(b"x", 1.5)
    assert not view.conflict
    since = NOW_MS + 1000
    assert view.told(b"a", 2.0)[0] == b"3:a %d 0 3:b %d 0" % (since, since)


def test_the_longest_heartbeat_of_all_clients_counts() -> None:
    """With a longer `node_timeout` a client tells more seldom, and misses a server later (R12c)."""
    slow = QuorumView(b"{meta}", 3, QUARANTINE_MS, heartbeat=2.0)
    for node in (b"a", b"b", b"x"):
        answers(slow, node, 0.5)
    told = slow.told(b"a", 0.5)[0].replace(b"3:x", b"3:z")
    members = [
        Member(identity[2:], int(since), int(age), b"them")
        for identity, since, age in (line.split(b" ") for line in _triples(told))
    ]
    for age_ms, disputed in ((11_900, True), (12_100, False)):  # of six times two seconds
        view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
        for moment in range(1, 30):
            for node in (b"a", b"b", b"x"):
                known = [member._replace(age_ms=age_ms) for member in members] if moment == 29 else []
                answers(view, node, float(moment), *known)
        assert view.members.disputed is disputed


@pytest.mark.parametrize("heartbeat_ms", [8000, 999_999_999])
def test_one_client_with_a_long_heartbeat_does_not_keep_lists_from_being_refused(heartbeat_ms: int) -> None:
    """And no vote is delayed by more than two quarantines, whatever is under the key (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
    pace, x = Member(pace_of(heartbeat_ms), NOT_USED, 0, b"them"), Member(b"x", NOW_MS - 9000, 0, b"them")
    for node in (b"a", b"b", b"y"):
        answers(view, node, 1.0, pace, x)
    assert view.members.disputed
    assert view.waits_for(x) <= 3 * WAIT
    for moment in range(2, 200):
        for node in (b"a", b"b", b"y"):
            answers(view, node, float(moment), *((x,) if moment == 2 else ()))
    assert view.members == Membership()


def _triples(told: bytes) -> list[bytes]:
    words = told.split(b" ")
    return [b" ".join(words[i : i + 3]) for i in range(0, len(words), 3)]


def test_a_client_remembers_no_more_servers_than_it_can_judge() -> None:
    """A server that is restarted over and over has another identity each time (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
    used = Member(b"y", NOW_MS, 5000, b"them")
    for moment in range(1, 101):
        waits = Member(b"restarted %d" % moment, WAITS, 0, b"them")
        for node in (b"a", b"b", b"x"):
            answers(view, node, moment / 10, *((used,) if moment == 1 else ()), waits)
    assert len(view._heard) <= MAX_SERVERS * 3
    assert (b"y", True) in view._heard
    assert (b"restarted 100", False) in view._heard


def test_an_init_by_a_clock_that_is_ahead_forgets_nothing_of_later() -> None:
    """The claim is one node's, and it is read on another one (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
    x = Member(b"x", NOW_MS, 0, b"them")
    for node in (b"a", b"b", b"y"):
        record = stored(3, age_ms=-8000, how=BY_INIT, identity=node)
        view.hear(node, record, heard_at=9.0, time_ms=NOW_MS, identity=node)
    for node in (b"a", b"b"):
        record = stored(3, age_ms=-8000, how=BY_INIT, identity=node)
        view.hear(node, record, heard_at=9.5, time_ms=NOW_MS + 500, identity=node, members=(x,))
    assert (b"x", True) in view._heard


@pytest.mark.parametrize(("moment", "told"), [(5.0, False), (8.0, True)])
def test_the_list_that_came_first_reports_others_when_they_stay(moment: float, told: bool) -> None:
    """Another client may have met a server that was restarted a moment before this one did (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS)
    y = Member(b"y", NOT_USED, 0, b"them")
    for half in range(2, round(2 * moment)):
        for node in (b"a", b"b", b"x"):
            answers(view, node, half / 2, *((y,) if half > 2 else ()))
    assert (view.members.strangers != ()) is told
    assert not view.members.disputed


@pytest.mark.parametrize(("quarantine_ms", "refused"), [(5900, False), (6000, True)])
def test_a_short_quarantine_refuses_no_list(quarantine_ms: int, refused: bool) -> None:
    """It may end while the last words about a server that has gone are on their way (R12c)."""
    view = QuorumView(b"{meta}", 3, quarantine_ms)
    x = Member(b"x", NOW_MS - 9000, 0, b"them")
    for node in (b"a", b"b", b"y"):
        answers(view, node, 1.0, x)
    assert set(view.members.others) == {b"y"}
    assert view.members.disputed is refused


def test_a_node_that_has_lost_its_memory_may_be_used_beside_another_server() -> None:
    """It may have been told of x by the client that uses both (R12c)."""
    view = QuorumView(b"{meta}", 3, QUARANTINE_MS, heartbeat=1.0)
    b_used = Member(b"b", NOW_MS - 2000, 0, b"them")
    x_used = Member(b"x", NOW_MS - 2000, 0, b"them")
    waits = stored(3, identity=b"a", ready_ms=NOW_MS + 60_000)
    view.hear(b"a", waits, heard_at=1.0, time_ms=NOW_MS, identity=b"a")
    answers(view, b"b", 1.0, b_used, x_used)
    answers(view, b"y", 1.0)
    assert set(view.members.others) == {b"y"}
    assert "it may count in place of this one" in view.members.reason(b"y")
    answers(view, b"a", 2.0)
