"""The listing of a history: all that happened is in it, in order of time."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.checks import Rule, check
from tests.simulation.history import Happening, History, Outcome, Update, Write
from tests.simulation.listing import listed
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
    history.happenings = [FAULT]
    history.writes = [Write(at=10.0, client=1, fence=70, accepted=False, name="bill", owner=b"a")]
    history.updates = [Update(at=4.0, client=0, name="bill", read=6, wrote=7)]
    return history


def test_everything_is_listed() -> None:
    """Calls, claims, faults, writes and the end of trouble, with names, fences and outcomes."""
    history = story()
    title, *lines = listed(history, check(history, rules=[], bound=1.0)).splitlines()
    assert title == "0 violations; 2 clients, 2 nodes"
    assert [line.strip().replace("its body stopped at 11 s", "LATE") for line in lines] == [
        "1.000000  client 1 (task 3) acquire 'bill': fail at 4 s (LockTakenError)",
        "2.000000  client 0 (task 0) held 'bill' with fence 71 from 2 s to 5 s, asked at 1.5 s",
        "3.000000  fault: node 0: frozen, until 8 s",
        "4.000000  client 0 raised the counter 'bill' from 6 to 7",
        "6.000000  client 1 (task 0) held 'bill' without a fence from 6 s to 9 s, asked at 5.5 s; LATE",
        "10.000000  client 1 wrote 'bill' with fence 70: refused",
        "15.000000  all faults are over",
        "17.000000  client 1 (task 3) acquire 'bill': did not end",
    ]


def test_the_time_around_the_first_violation_is_shown() -> None:
    """Or what is asked for; violations are never left out."""
    history = story()
    history.claims.append(replace(CLAIM, client=1, since=4.5, asked=4.25))
    violations = check(history, rules=[Rule.EXCLUSION], bound=1.0)
    text = listed(history, violations)
    assert f"4.500000  ! {violations[0]}" in text
    assert "client 1 wrote" not in text
    assert "client 1 wrote" in listed(history, violations, between=(9.0, 11.0))
