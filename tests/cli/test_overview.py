"""The text and the JSON of `status` and `watch`: no server is asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from aioredlock_ng import (
    LockInspection,
    NodeInspection,
    NodeState,
    NodeStatistics,
    PermitInspection,
    QueueInspection,
    ReaderInspection,
    SilentNode,
    Survey,
    WaiterInspection,
)
from aioredlock_ng._cli._overview import as_lines
from aioredlock_ng._cli._terminal import printable
from aioredlock_ng._view.overview import Overview
from aioredlock_ng._view.releasing import Agreed
from aioredlock_ng._view.values import overview_as_json as as_json

NOW = 1_763_640_000.0
"""20 November 2025, 12:00 UTC."""


def node(
    name: str, state: NodeState = NodeState.UP, *, reason: str = "", votes_in: float | None = None
) -> NodeStatistics:
    """Make a node."""
    trip = None if state is NodeState.DOWN else 0.0123
    return NodeStatistics(
        name=name, state=state, reason=reason, round_trip=trip, in_flight=0, pending_releases=0,
                          dropped=0, mismatched=0, votes_in=votes_in, clock=None)  # fmt: skip


def lock(name: str, *nodes: NodeInspection, agreed: int | None = None) -> LockInspection:
    """Make a lock; those that hold it agree, or the first few of them do."""
    holding = [one for one in nodes if one.held]
    return LockInspection(name=name, nodes=nodes, agreed=tuple(holding[:agreed]))


def held(holder: str | None = "me", *, since: float | None = NOW, ttl: float | None = 9.0) -> NodeInspection:
    """Make what a node holds."""
    kind = None if holder is None else "mutex"
    return NodeInspection(node="n", held=True, holder=holder, since=since, ttl=ttl, kind=kind)


FREE = NodeInspection(node="n", held=False)
SILENT = NodeInspection(node="n", held=None, reason="no answer")
LIST = NodeInspection(node="n", held=None, reason="WRONGTYPE Operation against a key")


def overview(
    nodes: Sequence[NodeStatistics],
    *locks: LockInspection,
    silent: Sequence[SilentNode] = (),
    truncated: bool = False,
    wait: float = 0.0,
) -> Overview:
    """Make an overview."""
    survey = Survey(locks=locks, truncated=truncated, silent=tuple(silent), at=NOW)
    return Overview(nodes=tuple(nodes), survey=survey, unavailable_for=wait)


UP = [node("a"), node("b"), node("c")]


def test_troubles_are_shown() -> None:
    """Nodes that are dead, silent and quarantined, with their reasons; locks of which too little is known."""
    nodes = [
        node("redis://a"),
        node("redis://b", NodeState.DOWN, reason="refused"),
        node("redis://c", NodeState.QUARANTINED, reason="restart quarantine", votes_in=7.5),
        node("redis://d"),
    ]
    shown = as_lines(
        overview(
            nodes,
            lock("job", held(), held(), held(), FREE),
            lock("left", held(None, since=None, ttl=None), FREE, LIST, FREE),
            lock("maybe", held(since=NOW + 5, ttl=1.0), held(since=NOW + 5), SILENT, SILENT),
            silent=[SilentNode(node="redis://d", reason="NOPERM"), SilentNode(node="redis://b", reason="x")],
            truncated=True,
            wait=7.5,
        )
    )
    text = "\n".join(line.text.replace("\t", "|") for line in shown)
    for words in (
        "nodes up: 2 of 4", "redis://b|down||refused", "redis://c|quarantined|12.3 ms|restart quarantine",
        "redis://d|up|12.3 ms|NOPERM", "held locks: 1 or more", "1/4 partial (WRONGTYPE)", "2/4 unknown",
        "2 of 4 nodes answered, 3 are needed", "no lock can be acquired for another 7.5 s",
        "the search stopped at its limit",
    ):  # fmt: skip
        assert words in text


def reader(
    holder: str | None, *, since: float | None = NOW, ttl: float = 9.0, held_by: int = 3
) -> ReaderInspection:
    """Make a reader."""
    return ReaderInspection(holder=holder, since=since, ttl=ttl, held_by=held_by)


def permit(slot: int, holder: str | None, since: float | None = NOW, *, held_by: int = 3) -> PermitInspection:
    """Make a permit."""
    return PermitInspection(slot=slot, holder=holder, since=since, ttl=9.0, held_by=held_by)


def shared(kind: str = "read", **of: Any) -> LockInspection:
    """Make a lock that readers share, or holders of permits; each node tells the first of them alone."""
    first = {name: shares[:1] for name, shares in of.items() if name != "more_readers"}
    node = NodeInspection(node="n", held=True, holder="a", since=NOW, ttl=9.0, kind=kind, **first)
    return LockInspection(name="it", nodes=(node,) * 3, agreed=(node,) * 3, **of)


EVIL = reader("evil\x1b", since=NOW - 60)
READ = shared(
    readers=(reader("web-1"), EVIL, reader(None, since=None, held_by=1, ttl=120.0)), more_readers=True
)
POOL = shared("semaphore", permits=(permit(0, "web-1"), permit(2, None, None, held_by=1)))
FAIR = lock("it", *[dataclasses.replace(held(), kind="fair")] * 3)
LINE = QueueInspection(
    name="it",
    waiters=(
        WaiterInspection(place=0, holder="web-1", since=NOW - 90, ours=False, known_to=3),
        WaiterInspection(place=1, holder=None, since=NOW + 1, ours=False, known_to=2),
    ),
    more_waiters=True,
    silent=(SilentNode(node="a", reason="NOPERM"), SilentNode(node="b", reason="down")),
)
WRITERS = QueueInspection(name="it", waiters=(), more_waiters=False, silent=(), writers=("web-9", None))


def with_line(seen: LockInspection, queue: QueueInspection | None, **options: Any) -> Overview:
    """Make an overview of a lock, and perhaps of its line."""
    queues = {} if queue is None else {"it": queue}
    return dataclasses.replace(overview(UP, seen, **options), queues=queues)


@pytest.mark.parametrize(
    ("seen", "queue", "rows", "limited"),
    [
        (
            READ,
            None,
            ["3 readers or more", "web-1", r"'evil\x1b'", "1/3 partial", "… and more"],
            "web-1, 'evil",
        ),
        (POOL, None, ["2 permits", "slot 0|web-1", "slot 2|-", "1/3 partial"], "2 permits: web-1, -"),
        (FAIR, LINE, ["fair|me", "place 0|web-1", "place 1|-", "node a does not report"], "fair (2+ wait)"),
        (READ, WRITERS, ["3 readers or more", "|waits|web-9|-|-|", "|waits|-|"], "read (2 wait)"),
    ],
    ids=["readers", "permits", "a queue", "writers"],
)
def test_all_that_share_a_lock_are_shown(
    seen: LockInspection, queue: QueueInspection | None, rows: list[str], limited: str
) -> None:
    """And those that wait for it, each in a line; where room is limited they share that of the lock.

    A node that tells of all but the line is named, one that tells of nothing is not named twice.
    """
    silent = [SilentNode(node="b", reason="down")]
    shown = [line.text.replace("\t", "|") for line in as_lines(with_line(seen, queue, silent=silent))]
    assert [words for words in rows if not any(words in line for line in shown)] == []
    assert not any("node b does not report" in line for line in shown)
    assert limited in as_lines(with_line(seen, queue), room=20)[6].text.replace("\t", "|")


def test_for_programs() -> None:
    """The answers of nodes as they are: null is not false, and no look at a line is no empty one."""
    seen = overview([*UP, node("d", NodeState.DOWN, reason="x")], lock("job", held(), FREE, SILENT, LIST))
    shown = as_json(seen)
    assert [one["held"] for one in shown["locks"][0]["nodes"]] == [True, False, None, None]
    assert (shown["locks"][0]["held_by"], shown["locks"][0]["queue"]) == (1, None)
    assert (shown["available"], shown["unavailable_for"], shown["quorum"]) == (True, 0.0, 3)
    down = {"node": "d", "state": "down", "reason": "x", "votes_in": None, "round_trip": None, "clock": None}
    assert shown["nodes"][3] == down
    for wait, seconds in ((math.inf, None), (3.5, 3.5)):
        waiting = as_json(overview(UP, wait=wait))
        assert (waiting["available"], waiting["unavailable_for"]) == (False, seconds)

    (read,), (pool,), (fair,) = (
        as_json(with_line(one, queue))["locks"] for one, queue in ((READ, None), (POOL, None), (FAIR, LINE))
    )
    assert (read["shared"], read["more_readers"], read["nodes"][0]["more_readers"]) == (True, True, False)
    assert read["readers"][2] == {"holder": None, "since": None, "ttl": 120.0, "held_by": 1}
    assert read["nodes"][0]["readers"] == [{"holder": "web-1", "since": NOW, "ttl": 9.0}]
    assert pool["permits"][1] == {"slot": 2, "holder": None, "since": None, "ttl": 9.0, "held_by": 1}
    assert pool["nodes"][0]["permits"][0] == {"slot": 0, "holder": "web-1", "since": NOW, "ttl": 9.0}
    assert fair["queue"] == {
        "waiters": [
            {"place": 0, "holder": "web-1", "since": NOW - 90, "known_to": 3},
            {"place": 1, "holder": None, "since": NOW + 1, "known_to": 2},
        ],
        "writers": (),
        "more_waiters": True,
        "silent": [{"node": "a", "reason": "NOPERM"}, {"node": "b", "reason": "down"}],
    }


def read(*holders: str, more: bool = False) -> LockInspection:
    """Make a lock that readers share."""
    return shared(readers=tuple(map(reader, holders)), more_readers=more)


MINE, OTHER_POOL = lock("it", *[held("a")] * 3), shared("semaphore", permits=(*POOL.permits, permit(1, "b")))


@pytest.mark.parametrize(
    ("shown", "now", "agreed"),
    [
        (MINE, lock("it", *[held("a", ttl=99.0)] * 3), True),
        (MINE, lock("it", *[held("b")] * 3), False),
        (MINE, lock("it", *[held("a", since=NOW + 1)] * 3), False),
        (MINE, read("a"), False),
        (MINE, POOL, False),
        (read("a", "b"), read("b"), True),
        pytest.param(read("a", "b"), read("c"), False, id="other readers"),
        (read("a", "b"), MINE, False),
        (read("a", "b", more=True), read("c"), True),
        (POOL, POOL, True),
        (POOL, shared("semaphore", permits=POOL.permits[:1]), True),
        (POOL, OTHER_POOL, False),
        (POOL, READ, False),
    ],
)
def test_holders_that_were_not_shown_are_left_alone(
    shown: LockInspection, now: LockInspection, agreed: bool
) -> None:
    """A forced release ends the locks of those that were shown: some may have gone, none may have come."""
    assert Agreed.of(shown).covers(now) is agreed


def test_a_list_that_lacks_servers() -> None:
    """Each server that other clients use, escaped, and what to do about it."""
    seen = dataclasses.replace(overview(UP), strangers=("1", "2"), disagreement=("one\x1b", "two", "compare"))
    assert [line.text for line in as_lines(seen)[5:]] == [repr("one\x1b"), "two", "compare"]
    assert as_json(seen)["strangers"] == seen.strangers


# -- the terminal ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "a b"), ("", "''"), ("a\nb", r"'a\nb'"), ("\x1b[0m", r"'\x1b[0m'"), ("\u202ex", r"'\u202ex'"),
     ("\udcff", r"'\udcff'"), ("日本", "日本"), ("\x85", r"'\x85'")],
)  # fmt: skip
def test_printable(text: str, shown: str) -> None:
    """Harmless text stays; anything else is quoted and escaped."""
    assert printable(text) == shown
