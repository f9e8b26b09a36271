"""Each rule of a history is checked; that the checks let good histories pass, campaigns show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.simulation.checks import Rule, Violation, check
from tests.simulation.history import (
    Claim,
    Effect,
    History,
    Look,
    Operation,
    Outcome,
    Remark,
    Update,
    Write,
)

BOUND: Final = 10.0

A, B, C = (letter * 40 + b":host" for letter in (b"a", b"b", b"c"))


def claim(since: float, until: float, fence: int | None = None, **more: Any) -> Claim:
    """Make a claim that was asked for when it was granted and whose body stopped in time."""
    terms = {"client": 1, "task": 0, "names": ("bill",), "owner": A, "asked": since, "stopped": until}
    return Claim(since=since, until=until, fence=fence, **(terms | more))


def permit(since: float, until: float, slot: int, fence: int | None = None, **more: Any) -> Claim:
    """Make a claim of a slot of two."""
    return claim(since, until, fence, **({"slot": slot, "permits": 2, "mode": "permit"} | more))


def effect(command: str, before: Any, after: Any, **more: Any) -> Effect:
    """Make what a command of A did, from a value and its ttl to another such pair."""
    (value, ttl), (new, new_ttl) = before or (None, None), after or (None, None)
    terms = {"at": 2.5, "node": 1, "client": 4, "owner": A, "key": b"redlock:bill"}
    changes = {"before": value, "after": new, "ttl_before": ttl, "ttl_after": new_ttl}
    return Effect(command=command, **terms, **changes, **more)


def write(at: float, one: Claim, *, accepted: bool = True, **more: Any) -> Write:
    """Make a write at a guarded resource under a claim."""
    terms = {"client": one.client, "name": "bill", "owner": one.owner, "fence": one.fence}
    return Write(at=at, accepted=accepted, **(terms | more))


def acquire(began: float, ended: float | None, outcome: Outcome = Outcome.OK, **more: Any) -> Operation:
    """Make an acquire."""
    terms = {"client": 1, "task": 2, "kind": "acquire", "names": ("bill",)}
    return Operation(began=began, ended=ended, outcome=outcome, **(terms | more))


def found(rule: Rule, **records: Any) -> list[Violation]:
    """Check a history for one rule."""
    return check(History(nodes=3, clients=9, **records), rules=[rule], bound=BOUND)


EARLIER, LATER = claim(1.0, 2.0, 71), claim(4.0, 9.0, 72, owner=B, client=2, asked=3.0)
"""Two claims of which the second one was asked for when the first one had been granted."""

APART: Final = [permit(1, 2, 0, 74), permit(3, 4, 1, 74), permit(5, 6, 0, 78), permit(9, 10, 0, 74)]
READER: Final = claim(1, 2, 71, mode="read")
WRITER: Final = claim(5, 6, 76, mode="write", unchanged_since=71, client=3, owner=C, asked=2.5)

FOUND: Final[list[tuple[Rule, dict[str, Any]]]] = [
    (
        Rule.EXCLUSION,
        {"claims": [claim(1, 5, names=("bill", "till")), claim(2, 3, names=("a", "till"))]},
    ),
    (Rule.EXCLUSION, {"claims": [claim(1, 3), claim(2, 4, mode="read")]}),
    (Rule.PERMITS, {"claims": [permit(1, 5, 0), permit(2, 6, 1, client=2), permit(3, 4, 1, client=3)]}),
    *((rule, {"claims": APART}) for rule in (Rule.UNIQUE, Rule.ORDER, Rule.SUCCESSION)),
    (Rule.UNIQUE, {"claims": [READER, replace(READER, owner=B), claim(5, 6, 71, client=4)]}),
    (Rule.ORDER, {"claims": [claim(2.0, 3.0, 79, asked=1.5), claim(1.0, 9.0, 80, client=3)]}),
    (Rule.UNCHANGED, {"claims": [EARLIER, claim(3, 4, 74, owner=B), replace(WRITER, asked=4.5)]}),
    (Rule.MEANWHILE, {"claims": [EARLIER, claim(3, 4, 74, owner=B), WRITER]}),
    *(
        (Rule.OWNERSHIP, {"effects": [one]})
        for one in (
            effect("release", (B, 5.0), None),
            effect("acquire", (B, 5.0), (A, 10.0)),
            effect("extend", (B, 5.0), (B, 10.0)),
            effect("repair", (B, 5.0), (B, 4.0)),
            effect("extend", None, (A, 10.0)),
            effect("acquire", None, (A, None)),
            effect("extend", (A, 5.0), (A, 4.999)),
            effect("slots-raise", (A, 5.0), None, slot=1),
        )
    ),
    *(
        (Rule.RESOURCE, {"claims": [EARLIER, LATER], "writes": writes})
        for writes in (
            [write(6.0, EARLIER), write(5.0, LATER)],
            [write(5.0, LATER, accepted=False)],
        )
    ),
    *(
        (Rule.LIVENESS, {"operations": [one], "healed_at": 100.0, "ended": 200.0})
        for one in (
            acquire(90, 110.5),
            acquire(100, None, Outcome.UNKNOWN),
            acquire(120, 121, Outcome.FAIL, note="NoError"),
            acquire(120, 130.5, Outcome.UNKNOWN),
        )
    ),
    (Rule.LOCAL_ORDER, {"operations": [acquire(2, 8, task=3, kind="try"), acquire(1, 9)]}),
    (Rule.LOCAL_ORDER, {"operations": [acquire(20, 40, mode="read"), acquire(21, 22, mode="write")]}),
]
"""Histories that break a rule once or more."""


@pytest.mark.parametrize(("rule", "records"), FOUND, ids=str)
def test_a_broken_rule_is_found(rule, records):
    """By the rule that the history breaks."""
    assert {violation.rule for violation in found(rule, **records)} == {rule}


def everything() -> History:
    """Make a history that breaks every rule."""
    history = History(nodes=3, clients=2, healed_at=0.0, ended=50.0)
    history.leaks, history.complaints = [Remark(at=50.0, what="a task")], [Remark(at=5.0, what="client 1")]
    history.claims = [claim(5, 8, 80, stopped=9.0), claim(6, 7, 80), claim(9, 10, 70)]
    history.effects = [effect("release", (B, 5.0), None)]
    history.claims += [EARLIER, LATER]
    history.writes = [write(6, EARLIER), write(5, LATER)]
    history.claims += [claim(30, 31, 90, mode="write", owner=B, unchanged_since=60)]
    history.claims += [permit(40, 41, 7)]
    history.looks = [Look(at=3.0, client=1, name="bill", first=6, then=7)]
    history.updates = [Update(at=float(at), client=at, name="bill", read=6, wrote=7) for at in (1, 2)]
    history.operations = [acquire(20, 40), acquire(21, 22, task=3)]
    history.claims += [claim(since, since, client=2, names=("form",)) for since in (44, 45)]
    history.operations += [acquire(43, 46, names=("form",), mode="fair")]
    return history


def test_default_rules():
    """All rules are checked by default, and violations are in order of time."""
    violations = check(everything(), bound=BOUND)
    assert {violation.rule for violation in violations} == set(Rule)
    times = [violation.at for violation in violations]
    assert times == sorted(times)


def test_hostile_name():
    """A name is written so that it cannot disturb a terminal; nothing breaks nothing."""
    names = ("\x1b[2J\n\u202e",)
    claims = [claim(1, 2, 5, names=names), claim(3, 4, 5, names=names)]
    [violation] = found(Rule.UNIQUE, claims=claims)
    assert violation.text.isascii()
    assert violation.text.isprintable()
    assert str(violation) == f"unique: {violation.text}"
    assert check(History(nodes=3, clients=2), rules=Rule, bound=BOUND) == []
