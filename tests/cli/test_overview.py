"""What `status` and `watch` make of what was seen, to the letter: no server is asked."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence

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
from aioredlock_ng._cli import _terminal
from aioredlock_ng._cli._overview import as_lines
from aioredlock_ng._cli._terminal import Line, Redrawn, cells, clipped, printable
from aioredlock_ng._dashboard.agreed import Agreed
from aioredlock_ng._dashboard.as_json import as_json
from aioredlock_ng._dashboard.overview import Overview, look
from tests.unit.worlds import opened, virtual, world

NOW = 1_763_640_000.0
"""20 November 2025, 12:00 UTC."""


def node(
    name: str, state: NodeState = NodeState.UP, *, reason: str = "", votes_in: float | None = None
) -> NodeStatistics:
    """Make a node."""
    trip = None if state is NodeState.DOWN else 0.0123
    return NodeStatistics(name=name, state=state, reason=reason, round_trip=trip, in_flight=0, owed=0,
                          dropped=0, mismatched=0, votes_in=votes_in, clock=None)  # fmt: skip


def lock(name: str, *nodes: NodeInspection, agreed: int | None = None) -> LockInspection:
    """Make a lock; those that hold it agree, or the first so many of them do."""
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


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


UP = [node("a"), node("b"), node("c")]


def test_all_there_is_to_the_letter() -> None:
    """Nodes that are up, dead, silent and quarantined; locks of all kinds; and what follows from it."""
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
            lock("old", *[held("you", since=NOW - 7200, ttl=0.04)] * 3, SILENT),
            lock("left", held(None, since=None, ttl=None), FREE, LIST, FREE),
            lock("maybe", held(since=NOW + 5, ttl=1.0), held(since=NOW + 5), SILENT, SILENT),
            silent=[SilentNode(node="redis://d", reason="NOPERM"), SilentNode(node="redis://b", reason="x")],
            truncated=True,
            wait=7.5,
        )
    )
    assert shown == [
        Line("nodes up: 2 of 4", "head"),
        Line("  redis://a  up           12.3 ms", "ok"),
        Line("  redis://b  down                  refused", "error"),
        Line("  redis://c  quarantined  12.3 ms  restart quarantine", "warning"),
        Line("  redis://d  up           12.3 ms  NOPERM", "warning"),
        Line("held locks: 2 or more", "head"),
        Line("  name   kind   holder  since                        ttl left  nodes", ""),
        Line("  job    mutex  me      2025-11-20 12:00:00 (0 s)    9.0 s     3/4", ""),
        Line("  old    mutex  you     2025-11-20 10:00:00 (2.0 h)  0.0 s     3/4", ""),
        Line(
            "  left   -      -       -                            none      1/4 partial (WRONGTYPE)",
            "warning",
        ),
        Line("  maybe  mutex  me      2025-11-20 12:00:05 (0 s)    9.0 s     2/4 unknown", "warning"),
        Line("2 of 4 nodes answered, 3 are needed to be sure: there may be other locks than these", "error"),
        Line(
            "2 of 4 nodes are up: no lock can be acquired for another 7.5 s; "
            "`aioredlock-ng init` if no lock can be alive",
            "error",
        ),
        Line("there may be more locks: the search was ended at its limit", "warning"),
    ]


def reader(
    holder: str | None, *, since: float | None = NOW, ttl: float = 9.0, held_by: int = 3
) -> ReaderInspection:
    """Make a reader."""
    return ReaderInspection(holder=holder, since=since, ttl=ttl, held_by=held_by)


def read(*readers: ReaderInspection, more: bool = False) -> LockInspection:
    """Make a lock that readers share."""
    node = NodeInspection(node="n", held=True, holder="a", since=NOW, ttl=9.0, readers=readers[:1])
    return LockInspection(
        name="catalogue", nodes=(node,) * 3, agreed=(node,) * 3, readers=readers, more_readers=more
    )


READ = read(
    reader("web-1"),
    reader("evil\x1b", since=NOW - 60),
    reader(None, since=None, held_by=1, ttl=120.0),
    more=True,
)


def test_readers_to_the_letter() -> None:
    """A line for the lock, one for each reader, and one where there are more than were named."""
    assert as_lines(overview(UP, lock("job", *[held()] * 3), READ))[4:] == [
        Line("held locks: 2", "head"),
        Line("  name       kind   holder             since                          ttl left  nodes", ""),
        Line("  job        mutex  me                 2025-11-20 12:00:00 (0 s)      9.0 s     3/3", ""),
        Line("  catalogue  read   3 readers or more  -                              9.0 s     3/3", ""),
        Line("                    web-1              2025-11-20 12:00:00 (0 s)      9.0 s     3/3", ""),
        Line("                    'evil\\x1b'         2025-11-20 11:59:00 (1.0 min)  9.0 s     3/3", ""),
        Line(
            "                    -                  -                              120.0 s   1/3 partial", ""
        ),
        Line("                    … and more", ""),
    ]
    assert as_lines(overview(UP, read(reader("web-1"))))[6].text.split()[:4] == [
        "catalogue",
        "read",
        "1",
        "reader",
    ]


def test_readers_share_a_line_where_room_is_limited() -> None:
    """As many as fit into the column are named."""
    *_, row = as_lines(overview(UP, READ), room=20)
    assert row.text.split("  ")[3] == r"3 readers or more: web-1, 'evil\x1b', -"
    *_, row = as_lines(overview(UP, read(*map(reader, "abcdefghijklmnopqrstuvwxyz"))), room=20)
    assert row.text.split("  ")[3] == "26 readers: a, b, c, d, e, f, g, h, i, …"


def test_readers_for_programs() -> None:
    """Each with the nodes that have it; which of them are ours is no matter of a command."""
    (shown,) = as_json(overview(UP, READ))["locks"]
    assert (shown["shared"], shown["more_readers"]) == (True, True)
    assert shown["readers"][2] == {"holder": None, "since": None, "ttl": 120.0, "held_by": 1}
    assert shown["nodes"][0]["readers"] == [{"holder": "web-1", "since": NOW, "ttl": 9.0}]
    assert shown["nodes"][0]["more_readers"] is False


def pool(*permits: PermitInspection) -> LockInspection:
    """Make a semaphore of which permits are held."""
    one = NodeInspection(
        node="n", held=True, holder="a", since=NOW, ttl=9.0, kind="semaphore", permits=permits
    )
    return LockInspection(name="gpu", nodes=(one,) * 3, agreed=(one,) * 3, permits=permits)


POOL = pool(
    PermitInspection(slot=0, holder="web-1", since=NOW, ttl=9.0, held_by=3),
    PermitInspection(slot=2, holder=None, ttl=1.0, held_by=1),
)


def test_permits_to_the_letter() -> None:
    """A line for the semaphore, and one for each permit that is held."""
    assert as_lines(overview(UP, POOL))[4:] == [
        Line("held locks: 1", "head"),
        Line("  name  kind       holder     since                      ttl left  nodes", ""),
        Line("  gpu   semaphore  2 permits  -                          9.0 s     3/3", ""),
        Line("        slot 0     web-1      2025-11-20 12:00:00 (0 s)  9.0 s     3/3", ""),
        Line("        slot 2     -          -                          1.0 s     1/3 partial", ""),
    ]
    *_, row = as_lines(overview(UP, POOL), room=20)
    assert row.text.split("  ")[3] == "2 permits: web-1, -"


def test_permits_for_programs() -> None:
    """Each with its slot, and the nodes that have it."""
    (shown,) = as_json(overview(UP, POOL))["locks"]
    assert shown["permits"][1] == {"slot": 2, "holder": None, "since": None, "ttl": 1.0, "held_by": 1}
    assert shown["nodes"][0]["permits"][0] == {"slot": 0, "holder": "web-1", "since": NOW, "ttl": 9.0}


@pytest.mark.parametrize(("now", "agreed"), [(POOL, True), (pool(POOL.permits[0]), True), (READ, False)])
def test_permits_that_were_not_shown_are_left_alone(now: LockInspection, agreed: bool) -> None:
    """What was agreed to is the end of those that were shown (`release`)."""
    assert Agreed.of(POOL).covers(now) is agreed
    another = PermitInspection(slot=1, holder="another", since=NOW, ttl=9.0, held_by=3)
    assert not Agreed.of(POOL).covers(pool(*POOL.permits, another))
    assert not Agreed.of(lock("gpu", *[held()] * 3)).covers(POOL)


LINE = QueueInspection(
    name="printer",
    waiters=(
        WaiterInspection(place=0, holder="web-1", since=NOW - 90, ours=False, known_to=3),
        WaiterInspection(place=1, holder=None, since=NOW + 1, ours=False, known_to=2),
    ),
    more_waiters=True,
    silent=(SilentNode(node="a", reason="NOPERM"), SilentNode(node="b", reason="down")),
)


def test_a_line_to_the_letter() -> None:
    """Below the lock that they wait for, free or not; a node that tells of all else is named."""
    fair = NodeInspection(node="n", held=True, holder="me", since=NOW, ttl=9.0, kind="fair")
    seen = overview(UP, lock("printer", fair, fair, fair), silent=[SilentNode(node="b", reason="down")])
    seen = dataclasses.replace(seen, queues={"printer": LINE})
    assert as_lines(seen)[4:] == [
        Line("held locks: 1", "head"),
        Line("  name     kind     holder      since                          ttl left  nodes", ""),
        Line("  printer  fair     me          2025-11-20 12:00:00 (0 s)      9.0 s     3/3", ""),
        Line("           place 0  web-1       2025-11-20 11:58:30 (1.5 min)  -         3/3", ""),
        Line("           place 1  -           2025-11-20 12:00:01 (0 s)      -         2/3", ""),
        Line("                    … and more", ""),
        Line("a does not tell its line: NOPERM", "warning"),
    ]


def test_a_line_is_counted_where_room_is_limited() -> None:
    """Beside the kind; of a line that is empty there is nothing to say."""
    fair = NodeInspection(node="n", held=True, holder="me", since=NOW, ttl=9.0, kind="fair")
    seen = overview(UP, lock("printer", fair, fair, fair))
    for more, shown in ((True, "fair (2+ wait)"), (False, "fair (2 wait)")):
        line = dataclasses.replace(LINE, more_waiters=more)
        rows = as_lines(dataclasses.replace(seen, queues={"printer": line}), room=20)
        assert rows[6].text.split("  ")[2] == shown
    empty = dataclasses.replace(LINE, waiters=(), more_waiters=False)
    rows = as_lines(dataclasses.replace(seen, queues={"printer": empty}), room=20)
    assert rows[6].text.split("  ")[2] == "fair"


def test_of_all_locks_the_lines_of_the_fair_ones_are_looked_at() -> None:
    """And of no other: each costs a round trip."""
    queues = {}

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other:
            async with w.manager.lock("a", fair=True), w.manager.lock("b"):
                waiting = asyncio.create_task(other.lock("a", fair=True).acquire())
                await asyncio.sleep(1)
                queues.update((await look(w.manager, queues=True)).queues)
                assert not (await look(w.manager)).queues
            await (await waiting).release()

    virtual(main)()
    assert {name: len(queue.waiters) for name, queue in queues.items()} == {"a": 1}


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (79, "  invoices:2025-11  fair (2+ wait)  billing-worker-7  2.0 h  9.0 s     3/3"),
        (60, "  invoices:2025-…  fair (2+ wait)  billing…  9.0 s     3/3"),
        (50, "  invoices:20…  fair (2+ wait)  billing…  9.0 s"),
        (24, "  invoices:20…  9.0 s"),
        (14, "  i…  9.0 s"),
    ],
)
def test_a_narrow_screen_cuts_names_and_keeps_the_ttl(width: int, row: str) -> None:
    """Moments become ages, names lose their ends; then columns go, and the name last."""
    fair = held("billing-worker-7", since=NOW - 7200)
    fair = dataclasses.replace(fair, kind="fair")
    seen = overview(UP, lock("invoices:2025-11", fair, fair, fair))
    seen = dataclasses.replace(seen, queues={"invoices:2025-11": dataclasses.replace(LINE, silent=())})
    *_, shown = as_lines(seen, room=20, width=width)
    assert shown.text == row


@pytest.mark.parametrize(("up", "says"), [(5, ", 2 may fail"), (3, ", none may fail"), (2, "")])
def test_how_many_nodes_may_fail(up: int, says: str) -> None:
    """Of those that are up; where too few are, a note says what follows."""
    nodes = [node(str(number), NodeState.UP if number < up else NodeState.DOWN) for number in range(5)]
    seen = overview(nodes)
    assert as_lines(seen)[0].text == f"nodes up: {up} of 5{says}"
    assert as_json(seen)["margin"] == up - 3


def test_a_line_for_programs() -> None:
    """Null where it was not looked at."""
    seen = overview(UP, lock("printer", FREE, FREE, FREE), lock("other", FREE, FREE, FREE))
    printer, other = as_json(dataclasses.replace(seen, queues={"printer": LINE}))["locks"]
    assert other["queue"] is None
    assert printer["queue"] == {
        "waiters": [
            {"place": 0, "holder": "web-1", "since": NOW - 90, "known_to": 3},
            {"place": 1, "holder": None, "since": NOW + 1, "known_to": 2},
        ],
        "more_waiters": True,
        "silent": [{"node": "a", "reason": "NOPERM"}, {"node": "b", "reason": "down"}],
    }


def test_nothing_held() -> None:
    """No table, and nothing to note; a free lock that was named is no warning."""
    assert [line.text for line in as_lines(overview(UP))][4:] == ["held locks: 0"]
    *_, row = as_lines(overview(UP, lock("free", FREE, FREE, FREE)))
    assert row == Line("  free  -     -       -      -         0/3 free", "")


def test_what_could_not_be_looked_at_is_a_problem() -> None:
    """It stands in place of the locks, harmless."""
    seen = Overview(nodes=tuple(UP), survey=None, problem="one\x1bserver", unavailable_for=math.inf)
    assert [line.text for line in as_lines(seen)][4:] == [
        r"'one\x1bserver'",
        "3 of 3 nodes are up: no lock can be acquired",
    ]
    assert seen.answered == 0


@pytest.mark.parametrize(("size", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(size: int, quorum: int) -> None:
    """Of an even number, too: with as many as that it is sure, with one less it is not."""
    nodes = [node(str(number)) for number in range(size)]
    for answered in (quorum, quorum - 1):
        silent = [SilentNode(node=str(number), reason="x") for number in range(size - answered)]
        seen = overview(nodes, silent=silent)
        assert (seen.quorum, seen.answered) == (quorum, answered)
        unsure = any("to be sure" in line.text for line in as_lines(seen))
        assert unsure == (answered < quorum)


@pytest.mark.parametrize(
    ("age", "shown"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1.0 min"), (3599, "60.0 min"), (3600, "1.0 h"), (86400, "1.0 d")],
)
def test_the_age_of_a_lock(age: float, shown: str) -> None:
    """In the largest unit of which there is one."""
    *_, row = as_lines(overview(UP, lock("a", *[held(since=NOW - age)] * 3)))
    assert f" ({shown}) " in row.text


@pytest.mark.parametrize(
    ("locks", "room", "shown", "more"), [(2, 8, 2, 0), (3, 9, 3, 0), (3, 8, 1, 2), (7, 9, 2, 5), (7, 7, 0, 7)]
)
def test_what_does_not_fit_is_counted(locks: int, room: int, shown: int, more: int) -> None:
    """Four lines for the nodes, two above the locks, one for each, or one for those that do not fit."""
    made = [lock(f"job {number}", held(), held(), held()) for number in range(locks)]
    lines = [line.text for line in as_lines(overview(UP, *made), room=room)]
    assert len(lines) <= room
    assert sum("job " in text for text in lines) == shown
    assert lines[6 + shown :] == ([f"  … and {more} more"] if more else [])


def test_on_a_screen_names_and_holders_are_cut() -> None:
    """To 40 columns each; where there is no end of lines they are whole."""
    long = lock("n" * 50, *[held("h" * 50)] * 3)
    *_, row = as_lines(overview(UP, long), room=20)
    assert row.text.startswith(f"  {'n' * 39}…  mutex  {'h' * 39}…  2025")
    *_, row = as_lines(overview(UP, long))
    assert row.text.startswith(f"  {'n' * 50}  mutex  {'h' * 50}  2025")


def test_for_programs() -> None:
    """What a node said, without interpretation: null is not false."""
    seen = overview([*UP, node("d", NodeState.DOWN, reason="x")], lock("job", held(), FREE, SILENT, LIST))
    shown = as_json(seen)
    assert [one["held"] for one in shown["locks"][0]["nodes"]] == [True, False, None, None]
    assert shown["locks"][0]["held_by"] == 1
    assert (shown["available"], shown["unavailable_for"], shown["quorum"]) == (True, 0.0, 3)
    assert shown["nodes"][3] == {
        "node": "d",
        "state": "down",
        "reason": "x",
        "votes_in": None,
        "round_trip": None,
    }
    dead = as_json(overview(UP, wait=math.inf))
    assert (dead["available"], dead["unavailable_for"]) == (False, None)
    waiting = as_json(overview(UP, wait=3.5))
    assert (waiting["available"], waiting["unavailable_for"]) == (False, 3.5)


# -- the terminal ------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A terminal that shows UTF-8."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_a_redrawn_picture_takes_the_place_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lines up as the last one had; one column and one line less than there are."""
    monkeypatch.setattr(_terminal.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((10, 5)))
    monkeypatch.setenv("NO_COLOR", "1")
    screen, rooms = Screen(), []

    def draw(*texts: str) -> list[Line]:
        return [Line(text) for text in texts]

    with Redrawn(screen) as redrawn:
        redrawn.show(lambda *room: rooms.append(room) or draw("123456789", "1234567890", "c"))
        redrawn.show(lambda *room: rooms.append(room) or draw("d"))
        redrawn.show(lambda *_: draw("e"))
    assert rooms == [(4, 9), (4, 9)]
    assert screen.getvalue() == (
        "\x1b[?25l\x1b[J123456789\n12345678…\nc\n\x1b[3F\x1b[Jd\n\x1b[1F\x1b[Je\n\x1b[?25h"
    )


@pytest.mark.parametrize(
    ("terminal", "no_color", "drawable", "coloured"),
    [("xterm", "", True, True), ("xterm", "1", True, False), ("dumb", "", False, False)],
)
def test_what_a_terminal_can_do(
    *, terminal: str, no_color: str, drawable: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Colours where they are seen and wanted; pictures in their place where that can be done."""
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert (_terminal._drawable(Screen()), _terminal._coloured(Screen())) == (drawable, coloured)
    assert not _terminal._coloured(io.StringIO())
    assert not _terminal._drawable(io.StringIO())
    shows = _terminal.open_screen(Screen())
    assert isinstance(shows, _terminal.Snapshots) is not drawable


def test_an_empty_text_is_visible() -> None:
    """As quotes; full-width characters take two columns, combining ones none."""
    assert printable("") == "''"
    assert (cells("\uff21"), cells("日"), cells("ä"), cells("\u0308")) == (2, 2, 1, 0)
    assert clipped("日日", 3) == "日…"
    assert clipped("abcdef", 4) == "abc…"


def test_the_log_is_quiet_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning meanwhile goes nowhere; one after it is shown as ever."""
    import logging

    log, said = logging.getLogger("aioredlock_ng"), io.StringIO()
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys, "stderr", said)
    with _terminal.quiet():
        log.warning("one")
    assert (said.getvalue(), log.handlers) == ("", [])
    log.warning("two")
    assert said.getvalue() == "two\n"
