"""The listing of a history: all that happened is in it, in order of time."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.checks import Rule, Violation, check
from tests.simulation.history import Happening, History, Outcome, Update, Write
from tests.simulation.listing import MOST, listed
from tests.simulation.test_checks import acquire, claim

CLAIM = claim(2.0, 5.0, 71, client=0, owner=b"a", asked=1.5)
CALL = acquire(1.0, 4.0, Outcome.FAIL, task=3, note="LockTakenError")
FAULT = Happening(at=3.0, until=8.0, node=0, client=None, what="frozen")


def story() -> History:
    """Make a history with some of everything."""
    history = History(nodes=2, clients=2, ended=20.0, healed_at=15.0)
    history.claims = [
        CLAIM,
        replace(CLAIM, client=1, fence=None, asked=5.5, since=6.0, until=9.0, stopped=11.0),
    ]
    history.operations = [CALL, replace(CALL, began=17.0, ended=None, outcome=Outcome.UNKNOWN, note="")]
    history.happenings = [FAULT, replace(FAULT, at=9.0, until=None, node=1, client=0, what="cut off")]
    history.happenings.append(replace(FAULT, at=1.25, node=None))
    history.writes = [Write(at=10.0, client=1, fence=70, accepted=False, name="bill", owner=b"a")]
    history.updates = [Update(at=4.0, client=0, name="bill", read=6, wrote=7)]
    return history


def two_holders() -> tuple[History, list[Violation]]:
    """Make a long history in which two hold a lock at once, around the time 500."""
    history = History(nodes=3, clients=2, ended=1000.0)
    times = [float(at) for at in range(5, 1000)]
    history.claims = [
        replace(CLAIM, asked=at, since=at, until=at + 0.75, stopped=at, fence=int(at)) for at in times
    ]
    history.claims.append(replace(CLAIM, client=1, asked=500.5, since=500.5, until=501.0, stopped=501.0))
    history.happenings = [replace(FAULT, at=at, until=at + 1, what=f"fault {at}") for at in (100, 499, 900)]
    return history, check(history, rules=[Rule.EXCLUSION], bound=1.0)


def test_everything_is_told() -> None:
    """Calls, claims, faults, writes and the end of trouble are told with names, fences and outcomes."""
    title, *lines = listed(story(), []).splitlines()
    assert title == "no violations; 2 clients, 2 nodes, 2 claims, 20 s; shown: 1 s to 20 s"
    assert [line.strip().replace("its body stopped at 11 s", "LATE") for line in lines] == [
        "1.000000  client 1 (task 3) acquire 'bill': fail at 4 s (LockTakenError)",
        "1.250000  fault: all: frozen, until 8 s",
        "2.000000  client 0 (task 0) held 'bill' with fence 71 from 2 s to 5 s, asked at 1.5 s",
        "3.000000  fault: node 0: frozen, until 8 s",
        "4.000000  client 0 raised the counter 'bill' from 6 to 7",
        "6.000000  client 1 (task 0) held 'bill' without a fence from 6 s to 9 s, asked at 5.5 s; LATE",
        "9.000000  fault: node 1 and client 0: cut off",
        "10.000000  client 1 wrote 'bill' with fence 70: refused",
        "15.000000  all faults are over",
        "17.000000  client 1 (task 3) acquire 'bill': did not end",
    ]


def test_the_time_around_the_first_violation_is_shown() -> None:
    """Or what is asked for; claims long before a violation do not widen it.

    Violations are never left out.
    """
    history, violations = two_holders()
    text = listed(history, violations)
    assert "1 violation; " in text
    assert "shown: 497 s to 503.5 s" in text
    assert f"  500.500000  !1 {violations[0]}" in text
    assert "fault 499" in text
    assert "fault 100" not in text
    asked = listed(history, violations, between=(99.0, 102.0))
    assert "fault 100" in asked
    assert "!1" not in asked
    assert len(listed(history, violations, between=(0.0, 1000.0)).splitlines()) == 1 + MOST + 1
    history.claims = [replace(CLAIM, since=5, asked=5), replace(CLAIM, since=900, asked=900)]
    assert "shown: 885 s to 903 s" in listed(history, check(history, rules=[Rule.UNIQUE], bound=1.0))


def test_hostile_words() -> None:
    """Nothing that is in a history gets out of its line."""
    hostile = "'\"\x00\x1b[2J\ud800\u202e\n"
    history = story()
    history.claims = [replace(one, names=(hostile, "b")) for one in history.claims]
    history.operations = [replace(one, names=(hostile,), note=hostile) for one in history.operations]
    history.happenings = [replace(one, what=hostile) for one in history.happenings]
    history.writes = [replace(one, name=hostile) for one in history.writes]
    history.updates = [replace(one, name=hostile) for one in history.updates]
    text = listed(history, check(history, rules=Rule, bound=1.0))
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
