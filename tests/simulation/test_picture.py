"""The pictures of a history: everything is in them, and nothing in a history disturbs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.checks import Rule, Violation, check
from tests.simulation.history import Claim, Happening, History, Operation, Outcome, Remark, Update, Write
from tests.simulation.picture import as_svg, as_text
from tests.simulation.picture_layout import MOST_ROWS
from tests.simulation.picture_svg import GUTTER as LEFT
from tests.simulation.picture_svg import LETTER, NAMES, WIDTH
from tests.simulation.picture_text import GUTTER, LISTED

HOSTILE: Final = "</title><script>&'\"\x00\x1b[2J\ud800\u202e\n"


def claim(since: float, until: float, **more: Any) -> Claim:
    """Make a claim that waited half a second."""
    terms = {"client": 0, "task": 0, "names": ("bill",), "owner": b"a", "fence": 1_801_234_567_890_123}
    return Claim(since=since, until=until, **({"asked": since - 0.5, "stopped": until} | terms | more))


def attempt(began: float, ended: float | None, outcome: Outcome, **more: Any) -> Operation:
    """Make an acquire."""
    terms = {"client": 1, "task": 3, "kind": "acquire", "names": ("bill",), "note": "LockTakenError"}
    return Operation(began=began, ended=ended, outcome=outcome, **(terms | more))


def fault(
    at: float, until: float | None, what: str, node: int | None = None, client: int | None = None
) -> Happening:
    """Make a fault."""
    return Happening(at=at, until=until, node=node, client=client, what=what)


def story() -> History:
    """Make a history with some of everything."""
    history = History(nodes=2, clients=2, ended=20.0, healed_at=15.0)
    history.claims = [
        claim(2, 5),
        claim(6, 9, client=1, fence=1_801_234_567_890_124, stopped=11.0),
        claim(12, 15, names=("stock",), fence=None),
    ]
    history.operations = [
        attempt(1.5, 2.0, Outcome.OK, client=0, task=0, note=""),
        attempt(1, 4, Outcome.FAIL),
        attempt(12, 16, Outcome.UNKNOWN),
        attempt(17, None, Outcome.UNKNOWN),
        attempt(17.5, 18.5, Outcome.FAIL, kind="try"),
        attempt(4, 4.1, Outcome.OK, client=0, kind="extend", note=""),
    ]
    history.happenings = [
        fault(3, 8, "frozen", node=0),
        fault(9, None, "restarted empty", node=1),
        fault(2, 6, "cut off", node=1, client=0),
        fault(10, 13, "loop stalled", client=1),
        fault(1, 2, "20 % loss"),
    ]
    terms = {"name": "bill", "owner": b"a"}
    history.writes = [Write(at=3.0, client=0, fence=1_801_234_567_890_123, accepted=True, **terms)]
    history.writes += [Write(at=11.0, client=1, fence=1_801_234_567_890_122, accepted=False, **terms)]
    history.updates = [Update(at=4.0, client=0, name="bill", read=6, wrote=7)]
    return history


def two_holders() -> tuple[History, list[Violation]]:
    """Make a long history in which two hold a lock at once, around the time 500."""
    history = History(nodes=3, clients=2, ended=1000.0)
    history.claims = [claim(float(at), at + 0.75, fence=at) for at in range(5, 1000)]
    history.claims.append(claim(500.5, 501.0, client=1, fence=77_777))
    history.happenings = [fault(at, at + 1.0, f"fault {at}", node=0) for at in (100, 499, 900)]
    return history, check(history, rules=[Rule.EXCLUSION], bound=1.0)


def lane(text: str, title: str) -> str:
    """Return the rows of a lane."""
    rows: list[str] = []
    for line in text.split("\n\n")[1].splitlines():
        if line.startswith(title) or (rows and line.startswith(" " * GUTTER)):
            rows.append(line[GUTTER:])
        elif rows:
            break
    return "\n".join(rows)


def listing(text: str) -> list[str]:
    """Return the lines below the lanes."""
    return text.split("\n\n")[2].splitlines()


# -- as text -----------------------------------------------------------------------------------


def test_lanes():
    """Clients have lanes with their claims, waits and pauses, nodes with their faults, and all have one."""
    text = as_text(story(), [], width=100 + GUTTER, between=(0.0, 20.0))
    assert "  ..[bill:0123====]  " in lane(text, "client 0")
    assert "  ...[stock========]" in lane(text, "client 0")
    assert "  ..[bill:0124====]!!!!!!!!!!  " in lane(text, "client 1")
    assert "  .bill.........x  " in lane(text, "client 1")
    assert "  .bill..............?  " in lane(text, "client 1")
    assert "  .bill.........?" in lane(text, "client 1")
    assert "  ~loop stalled~~  " in lane(text, "client 1")
    assert "  ~frozen~~~~~~~~~~~~~~~~~~\n" in lane(text, "node 0") + "\n"
    assert "^ restarted empty" in lane(text, "node 1")
    assert "~cut off (client 0)~" in lane(text, "node 1")
    assert "~~~~ 20 % loss" in lane(text, "all")
    assert "^ healed" in lane(text, "all")


def test_scale():
    """A bar begins and ends under its times."""
    history = History(nodes=1, clients=0, ended=20.0, happenings=[fault(5, 15, "frozen", node=0)])
    text = as_text(history, [], between=(1.0, 20.0))
    numbers, marks, *_ = (line[GUTTER:] for line in text.split("\n\n")[1].splitlines())
    assert [number for number, mark in enumerate(marks) if mark == "+"] == [
        *(numbers.index(time) for time in ("5", "10", "15")),
        len(marks) - 1,
    ]
    assert lane(text, "node 0").index("~") == numbers.index("5")
    assert lane(text, "node 0").rindex("~") + 1 == numbers.index("15")


def test_width():
    """The lanes are as wide as is asked for, and no wider."""
    history, violations = two_holders()
    for width in (60, 100, 200):
        _, lanes, _ = as_text(history, violations, width=width).split("\n\n")
        assert max(len(line) for line in lanes.splitlines()[:-2]) == width


def test_listing():
    """Below the lanes is all that happened, in order of time, with names, fences and outcomes."""
    lines = listing(as_text(story(), []))
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    told = [line.split(maxsplit=1)[1].replace("its body stopped at 11 s", "LATE") for line in lines]
    for line in (
        "client 0 (task 0) acquire 'bill': ok at 2 s",
        "client 0 (task 3) extend 'bill': ok at 4.1 s",
        "client 1 (task 3) acquire 'bill': fail at 4 s (LockTakenError)",
        "client 1 (task 3) acquire 'bill': unknown at 16 s (LockTakenError)",
        "client 1 (task 3) acquire 'bill': did not end (LockTakenError)",
        "client 1 (task 3) try 'bill': fail at 18.5 s (LockTakenError)",
        "client 0 (task 0) held 'bill' with fence 1801234567890123 from 2 s to 5 s, asked at 1.5 s",
        "client 1 (task 0) held 'bill' with fence 1801234567890124 from 6 s to 9 s, asked at 5.5 s; LATE",
        "client 0 (task 0) held 'stock' without a fence from 12 s to 15 s, asked at 11.5 s",
        "fault: node 0: frozen, until 8 s",
        "fault: node 1: restarted empty",
        "fault: node 1 and client 0: cut off, until 6 s",
        "fault: client 1: loop stalled, until 13 s",
        "fault: all: 20 % loss, until 2 s",
        "client 0 wrote 'bill' with fence 1801234567890123: accepted",
        "client 1 wrote 'bill' with fence 1801234567890122: refused",
        "client 0 raised the counter 'bill' from 6 to 7",
        "all faults are over",
    ):
        told.remove(line)
    assert told == []


def test_violation():
    """A violation has a mark in a lane of its own and its text in the list; its claims stand out."""
    history, violations = two_holders()
    text = as_text(history, violations)
    assert "^ !1" in lane(text, "violations")
    assert "#bill:500#" in lane(text, "client 0")
    assert "###### bill:7777" in lane(text, "client 1")
    assert "#" not in lane(as_text(history, []), "client 0")
    assert [line for line in listing(text) if "!1" in line] == [f"  500.500000  !1 {violations[0]}"]
    assert text.startswith("1 violation; 2 clients, 3 nodes, 996 claims, 1000 s")


def test_zoom():
    """By default the time around the first violation is shown, else all, else what is asked for."""
    history, violations = two_holders()
    assert "shown: 496.5 s to 503.5 s" in as_text(history, violations)
    assert "fault 499" in as_text(history, violations)
    assert "fault 100" not in as_text(history, violations)
    assert "shown: 4.5 s to 1000 s" in as_text(history, [])
    asked = as_text(history, violations, between=(99.0, 102.0))
    assert "fault 100" in asked
    assert "fault 499" not in asked
    assert "!1" not in asked


def test_edges():
    """What goes on beyond what is shown has no end there, and what lies beyond it is not drawn."""
    history = History(nodes=1, clients=2, ended=30.0)
    history.claims = [claim(8, 15), claim(16, 22), claim(24, 26, asked=19.5), claim(1, 2, stopped=10.5)]
    history.operations = [attempt(19, 25, Outcome.FAIL)]
    text = as_text(history, [], width=100 + GUTTER, between=(10.0, 20.0))
    begun_before = "=bill:0123" + "=" * 39 + "]"
    assert lane(text, "client 0").splitlines() == [
        "!!!!!" + " " * 50 + ".....[bill:0123" + "=" * 30,
        begun_before + " " * 45 + ".....",
    ]
    assert lane(text, "client 1") == " " * 90 + ".bill....."
    svg = as_svg(history, [], between=(10.0, 20.0))
    assert not {"×", "?"} & set(texts(svg))
    edges = [float(bar.get("x", "")) for bar in elements(svg, "rect") if bar.get("fill") == NAMES[0]]
    assert edges == [LEFT, LEFT + 0.6 * WIDTH]


def test_long_words():
    """A word that has no room is cut."""
    history = History(nodes=1, clients=0, ended=9.0, happenings=[fault(4, 5, "frozen " * 20, node=0)])
    text = as_text(history, [], width=60, between=(0.0, 9.0))
    assert lane(text, "node 0").startswith(" " * 22 + "~~~~~ frozen frozen")
    assert max(map(len, text.split("\n\n")[1].splitlines()[:-2])) == 60
    [word] = [word for word in texts(as_svg(history, [])) if word.startswith("frozen")]
    assert 20 < len(word) * LETTER < WIDTH


def test_far_claims():
    """A claim that was long ago does not widen what is shown without bounds."""
    history = History(nodes=1, clients=1, ended=1000.0, claims=[claim(5, 6), claim(900, 901)])
    [violation] = check(history, rules=[Rule.UNIQUE], bound=1.0)
    assert "shown: 885 s to 903 s" in as_text(history, [violation])


def test_too_many():
    """What has no room in a lane is counted, and the list ends somewhere; violations are never left out."""
    history, violations = two_holders()
    history.claims += [claim(400.0, 600.0 + number, client=1, names=("other",)) for number in range(50)]
    text = as_text(history, violations, between=(0.0, 1000.0))
    assert f"({50 - MOST_ROWS + 1} more have no room here)" in lane(text, "client 1")
    assert "bill:7777" in lane(text, "client 1")
    assert len(listing(text)) == LISTED + len(violations)
    assert any("!1" in line for line in listing(text))


def test_clients_left_out():
    """A client or node beyond the number has a lane, too."""
    history = History(nodes=1, clients=1, ended=9.0, claims=[claim(1, 8, client=4)])
    history.happenings.append(fault(1, 8, "frozen", node=6))
    assert "bill:0123" in lane(as_text(history, []), "client 4")
    assert "frozen" in lane(as_text(history, []), "node 6")


@pytest.mark.parametrize("draw", [as_text, as_svg])
def test_nothing(draw):
    """A history without anything has a picture."""
    picture = draw(History(nodes=1, clients=1), [])
    assert "client 0" in picture
    assert "node 0" in picture


# -- as SVG ------------------------------------------------------------------------------------


def elements(svg: str, tag: str) -> Iterator[ET.Element]:
    """Return the elements of a sort."""
    return ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")  # noqa: S314 (our own)


def texts(svg: str, tag: str = "text") -> list[str]:
    """Return what is written, or told by tooltips."""
    return [element.text or "" for element in elements(svg, tag)]


def test_svg_has_everything():
    """Each claim, failed attempt, fault and violation has a tooltip that tells it all; lanes have names."""
    violations = [Violation(rule=Rule.LEAK, at=9.0, text="left at 9 s: a task", claims=(story().claims[1],))]
    svg = as_svg(story(), violations, between=(0.0, 20.0))
    told = texts(svg, "title")
    for beginning in (
        "client 0 (task 0) held 'bill' with fence 1801234567890123 from 2 s to 5 s",
        "client 1 (task 0) held 'bill' with fence 1801234567890124 from 6 s to 9 s",
        "client 0 (task 0) held 'stock' without a fence from 12 s",
        "client 1 (task 3) acquire 'bill': fail at 4 s (LockTakenError), begun at 1 s",
        "client 1 (task 3) acquire 'bill': unknown at 16 s",
        "client 1 (task 3) acquire 'bill': did not end",
        "client 1 (task 3) try 'bill': fail",
        "node 0: frozen, until 8 s, from 3 s on",
        "node 1: restarted empty, from 9 s on",
        "node 1 and client 0: cut off",
        "client 1: loop stalled",
        "all: 20 % loss",
        "all faults are over at 15 s",
        "!1 leak: ",
    ):
        [one] = [tip for tip in told if tip.startswith(beginning)]
        told.remove(one)
    assert told == []
    words = (
        "bill:0123",
        "frozen",
        "restarted empty",
        "cut off (client 0)",
        "loop stalled",
        "20 % loss",
        "healed",
    )
    lanes = ("client 0", "client 1", "node 0", "node 1", "all", "violations")
    assert {*words, *lanes, "!1", "×", "?"} <= set(texts(svg))
    assert f"!1 {violations[0]}".startswith(texts(svg)[-1][:60])


def test_svg_zoom():
    """It shows the same stretch of time as the text."""
    history, violations = two_holders()
    assert "fault 499" in texts(as_svg(history, violations))
    assert "fault 100" not in texts(as_svg(history, violations))
    assert "fault 100" in texts(as_svg(history, violations, between=(99.0, 102.0)))


@pytest.mark.parametrize("draw", [as_text, as_svg])
def test_same_again(draw):
    """The same history has the same picture."""
    assert draw(*two_holders()) == draw(*two_holders())


def test_hostile_words():
    """Nothing that is in a history gets out of its place in the picture."""
    history = story()
    history.claims = [replace(one, names=(HOSTILE, "b")) for one in history.claims]
    history.operations = [replace(one, names=(HOSTILE,), note=HOSTILE) for one in history.operations]
    history.happenings = [replace(one, what=HOSTILE) for one in history.happenings]
    history.writes = [replace(one, name=HOSTILE) for one in history.writes]
    history.updates = [replace(one, name=HOSTILE) for one in history.updates]
    history.leaks = [Remark(at=1.0, what=HOSTILE)]
    violations = check(history, rules=Rule, bound=1.0)

    svg, text = as_svg(history, violations, between=(0.0, 20.0)), as_text(history, violations)

    assert not list(elements(svg, "script"))
    assert any("</title><script>&'\"" in tip for tip in texts(svg, "title"))
    assert all(line.isprintable() for line in svg.splitlines())
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
    assert len(listing(text)) == len(listing(as_text(story(), violations)))


@st.composite
def crowded(draw: Any) -> History:
    """Draw a history whose items get into each other's way."""
    instants = st.floats(0, 10).map(lambda moment: round(moment, 2))
    history = History(nodes=2, clients=2, ended=10.0)
    for number in range(draw(st.integers(0, 25))):
        asked, since, until, stopped = sorted(draw(instants) for _ in range(4))
        name = draw(st.text("abc", min_size=1, max_size=30))
        history.claims.append(
            claim(since, until, asked=asked, stopped=stopped, client=number % 2, names=(name,))
        )
        history.happenings.append(fault(asked, draw(st.none() | st.just(since)), name, node=number % 2))
        history.operations.append(attempt(asked, until, Outcome.FAIL, names=(name,), client=number % 2))
    return history


@settings(max_examples=25, derandomize=True)
@given(crowded(), st.booleans())
def test_labels_do_not_overlap(history, wrong):
    """In a crowd, too, no label is written over another or outside of the picture."""
    rules = [Rule.UNIQUE] if wrong else []
    svg = as_svg(history, check(history, rules=rules, bound=1.0), between=(0.0, 10.0))
    ends: dict[float, list[tuple[float, float]]] = {}
    for group in elements(svg, "g"):
        for text in group.iter("{http://www.w3.org/2000/svg}text"):
            if len(text.text or "") > 1:
                x = float(text.get("x", ""))
                ends.setdefault(round(float(text.get("y", "")) / 22), []).append(
                    (x, x + len(text.text or "") * LETTER)
                )
    width = float(ET.fromstring(svg).get("width", ""))  # noqa: S314 (our own)
    for row in ends.values():
        row.sort()
        assert all(one[1] <= two[0] for one, two in pairwise(row))
        assert row[-1][1] <= width


@settings(max_examples=25, derandomize=True)
@given(crowded(), st.integers(40, 200))
def test_text_of_a_crowd(history, width):
    """In a crowd, too, each fault is named as far as there is room, and no line is too long."""
    text = as_text(history, [], width=width, between=(0.0, 10.0))
    rows = text.split("\n\n")[1].splitlines()[:-2]
    assert all(len(row) <= width for row in rows)
    lanes = lane(text, "node 0") + lane(text, "node 1")
    if "have no room" not in lanes:
        assert all(one.what[:8] in lanes for one in history.happenings)
