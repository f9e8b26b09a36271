"""What the checks find in a history, and what they let pass."""

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


def reads(since: float, until: float, fence: int | None = None, **more: Any) -> Claim:
    """Make a claim of a reader."""
    return claim(since, until, fence, mode="read", **more)


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


def late(operation: Operation) -> dict[str, Any]:
    """Make a history in which all faults are over at 100 s."""
    return {"operations": [operation], "healed_at": 100.0, "ended": 200.0}


def turns(*holds: tuple[float, int]) -> dict[str, Any]:
    """Make holds of others, of half a second, while a call for a fair lock waits from 1 s to 9 s."""
    claims = [claim(since, since + 0.5, client=client, mode="fair") for since, client in holds]
    return {"claims": claims, "operations": [acquire(1, 9, mode="fair")]}


def found(rule: Rule, **records: Any) -> list[Violation]:
    """Check a history for one rule."""
    return check(History(nodes=3, clients=9, **records), rules=[rule], bound=BOUND)


EARLIER, LATER = claim(1.0, 2.0, 71), claim(4.0, 9.0, 72, owner=B, client=2, asked=3.0)
"""Two claims of which the second one was asked for when the first one had been granted."""

BESIDE: Final = replace(LATER, asked=0.5)
GUARDED: Final = [EARLIER, LATER, replace(EARLIER, mode="read"), replace(LATER, mode="read")]
READS_LATE: Final = write(5.0, LATER, reads=True)

APART: Final = [permit(1, 2, 0, 74), permit(3, 4, 1, 74), permit(5, 6, 1, 76), permit(7, 8, 0, 78)]
AGAIN: Final = permit(9, 10, 0, 74)
TOGETHER: Final = [reads(1, 2, 71), reads(1, 2, 71, client=2, owner=B), reads(3, 4, 71, client=3, owner=B)]
BETWEEN: Final = claim(3, 4, 74, client=2, owner=B)
UNCHANGED: Final = claim(5, 6, 76, mode="write", unchanged_since=71, client=3, owner=C, asked=4.5)
WAITED: Final = replace(UNCHANGED, asked=2.5)

OWNED: Final = "of client 4 (owner aaaaaaaaaaaa…)"
OF_B: Final = "belonged to client 7 (owner bbbbbbbbbbbb…)"
B_CLAIMS: Final = [claim(1, 2, owner=B, client=7)]
UPDATES: Final = [Update(at=float(at), client=at, name="bill", read=6, wrote=7) for at in (1, 2)]
RISING: Final = [Update(at=float(at), client=1, name="bill", read=at, wrote=at + 1) for at in range(3)]

FOUND: Final[list[tuple[Rule, dict[str, Any], tuple[str, ...]]]] = [
    (
        Rule.EXCLUSION,
        {"claims": [claim(2.5, 4.0, 72, client=2, task=5), claim(1.0, 3.0, 71)]},
        (
            "two held 'bill' from 2.5 s to 3 s: client 1 (task 0) held it from 1 s to 3 s with fence 71",
            "client 2 (task 5) held it from 2.5 s to 4 s with fence 72",
        ),
    ),
    (
        Rule.EXCLUSION,
        {"claims": [claim(1, 5, names=("bill", "stock")), claim(2, 3, names=("stock", "till"))]},
        ("two held 'stock' from",),
    ),
    (
        Rule.PERMITS,
        {"claims": [permit(1, 5, 0), permit(2, 6, 1, client=2), permit(3, 4, 1, client=3)]},
        ("3 held 'bill' at 3 s", "there are 2", "client 3 (task 0)"),
    ),
    (Rule.PERMITS, {"claims": [permit(1, 5, -1)]}, ("was given slot -1 of 2 of 'bill'",)),
    (
        Rule.UNIQUE,
        {"claims": [claim(1, 2, 71), claim(3, 4, 72), claim(5, 6, 71, client=2)]},
        ("fence 71 of 'bill'", "client 1 (task 0) at 1 s", "client 2 (task 0) at 5 s"),
    ),
    (Rule.UNIQUE, {"claims": [*APART, AGAIN]}, ("'bill[0]'",)),
    (Rule.UNIQUE, {"claims": [claim(1, 2, 70, mode="write"), reads(3, 4, 70, owner=B)]}, ("fence 70",)),
    (Rule.UNIQUE, {"claims": [*TOGETHER, claim(5, 6, 71, client=4)]}, ("fence 71", "client 4")),
    (
        Rule.ORDER,
        {"claims": [claim(2.0, 3.0, 79, asked=1.5), claim(1.0, 9.0, 80, client=3)]},
        (
            "client 1 (task 0) asked for 'bill' at 1.5 s and got fence 79 at 2 s",
            "client 3 (task 0) had been given fence 80 at 1 s",
        ),
    ),
    (Rule.ORDER, {"claims": [*APART, AGAIN]}, ("'bill[0]'",)),
    (
        Rule.SUCCESSION,
        {"claims": [claim(1, 3, 80), claim(3, 4, 79, client=2, asked=0.5)]},
        ("'bill'", "client 1 (task 0) held it from 1 s to 3 s with fence 80, then client 2", "with fence 79"),
    ),
    (Rule.SUCCESSION, {"claims": [*APART, AGAIN]}, ("held it from 7 s to 8 s with fence 78",)),
    *(
        (rule, {"claims": [EARLIER, BETWEEN, one]}, ("client 3", "since fence 71", "client 2", "fence 74"))
        for rule, one in (
            (Rule.UNCHANGED, UNCHANGED),
            (Rule.MEANWHILE, UNCHANGED),
            (Rule.MEANWHILE, WAITED),
        )
    ),
    *(
        (
            Rule.OWNERSHIP,
            {"effects": [one], "claims": B_CLAIMS},
            (f"{one.command} {OWNED} {said} key 'redlock:bill' on node 1 at 2.5 s", OF_B),
        )
        for one, said in (
            (effect("release", (B, 5.0), None), "deleted"),
            (effect("acquire", (B, 5.0), (A, 10.0)), "overwrote"),
            (effect("extend", (B, 5.0), (B, 10.0)), "extended"),
            (effect("extend", (B, 5.0), (B, None)), "extended"),
            (effect("repair", (B, 5.0), (B, 4.0)), "shortened"),
            (effect("raise", (B, None), (B, 4.0)), "shortened"),
        )
    ),
    (Rule.OWNERSHIP, {"effects": [effect("release", (B, 5.0), None)]}, ("belonged to an unknown owner",)),
    *(
        (Rule.OWNERSHIP, {"effects": [one]}, (f"{one.command} {OWNED} {said} key",))
        for one, said in (
            (effect("extend", None, (A, 10.0)), "made a missing"),
            (effect("release", None, (A, 10.0)), "made a missing"),
            (effect("raise", None, (A, 10.0)), "made a missing"),
            (effect("acquire", None, (B, 10.0)), "made, for another owner than its own,"),
            (effect("acquire", None, (A, None)), "made, without expiry, a"),
            (effect("extend", (A, 5.0), (A, 4.999)), "shortened its own"),
            (effect("extend", (A, None), (A, 4.0)), "shortened its own"),
            (effect("extend", (A, 5.0), None), "deleted its own"),
            (effect("extend", (A, 5.0), (A, None)), "took the expiry off its own"),
            (effect("acquire", (A, 5.0), (B, 5.0)), "overwrote"),
            (effect("slots-raise", (A, 5.0), None, slot=1), "deleted its own"),
            (effect("slots-extend", None, (A, 10.0), slot=1), "made a missing"),
        )
    ),
    *(
        (Rule.RESOURCE, {"claims": GUARDED, "writes": writes}, words)
        for writes, words in (
            (
                [write(6.0, EARLIER), write(5.0, LATER)],
                ("'bill' accepted fence 71 from client 1 at 6 s", "client 2 (task 0)", "asked later, at 3 s"),
            ),
            ([write(5.0, LATER, accepted=False)], ("'bill' refused fence 72 from client 2 at 5 s",)),
            ([write(2.0, EARLIER), write(5.0, LATER, accepted=False)], ("refused fence 72",)),
            ([READS_LATE, write(6.0, EARLIER)], ("accepted fence 71",)),
            ([READS_LATE, write(6.0, EARLIER, reads=True, accepted=False)], ("refused fence 71",)),
            ([write(5.0, LATER), write(6.0, EARLIER, reads=True)], ("accepted fence 71",)),
        )
    ),
    (
        Rule.STEADY,
        {"looks": [Look(at=4.0, client=2, name="bill", first=6, then=7)]},
        ("'bill'", "client 2 read 6, and 7 at 4 s"),
    ),
    (Rule.LOST_UPDATE, {"updates": UPDATES}, ("'bill'", "client 2 wrote 7 at 2 s, as client 1 had at 1 s")),
    *(
        (
            Rule.LIVENESS,
            late(one),
            (
                f"client 1 (task 2) asked for 'bill' at {one.began:g} s; all faults were over at 100 s, but",
                f"{said}, 10 s were allowed from",
                f"from {max(one.began, 100.0):g} s on",
            ),
        )
        for one, said in (
            (acquire(90, 110.5), "the acquire succeeded only at 110.5 s"),
            (acquire(120, 130.5), "the acquire succeeded only at 130.5 s"),
            (acquire(100, None, Outcome.UNKNOWN), "the acquire never ended"),
            (acquire(120, 121, Outcome.FAIL, note="NoError"), "the acquire failed at 121 s (NoError)"),
            (acquire(90, 100.5, Outcome.FAIL), "the acquire failed at 100.5 s"),
            (acquire(120, 130.5, Outcome.UNKNOWN), "the acquire was given up at 130.5 s"),
        )
    ),
    *(
        (
            Rule.LOCAL_ORDER,
            {"operations": [acquire(2, 8, task=3, kind="try"), earlier]},
            ("client 1 (task 3) asked for 'bill' at 2 s and got it at 8 s", "client 1 (task 2)", "since 1 s"),
        )
        for earlier in (acquire(1, 9), acquire(1, None, Outcome.UNKNOWN, kind="try"))
    ),
    (
        Rule.LOCAL_ORDER,
        {"operations": [acquire(1, 6), acquire(2, 9, task=3), acquire(2, 5, task=4)]},
        ("(task 4)", "since 1 s"),
    ),
    *(
        (
            Rule.LOCAL_ORDER,
            {"operations": [acquire(20, 40, mode=one), acquire(21, 22, mode=two)]},
            ("at 22 s",),
        )
        for one, two in (("read", "write"), ("write", "read"), ("lock", "read"))
    ),
    (Rule.TURNS, turns((3, 2), (5, 2)), ("from 1.1 s to 9 s, but client 2 had it 2 times",)),
    (Rule.LEAK, {"leaks": [Remark(at=8.5, what="a key\n of 2")]}, (r"left at 8.5 s: a key\n of 2",)),
    (
        Rule.COMPLAINT,
        {"complaints": [Remark(at=7.0, what="client 1\n was late")]},
        (r"at 7 s client 1\n was",),
    ),
]
"""What breaks a rule once, and what is said then."""

PASSED: Final[list[tuple[Rule, dict[str, Any]]]] = [
    (Rule.EXCLUSION, {"claims": [claim(1, 3), claim(2, 4, names=("other",))]}),
    (Rule.EXCLUSION, {"claims": [claim(1, 3), claim(2, 2), claim(3, 4, asked=0.0)]}),
    (Rule.EXCLUSION, {"claims": [claim(1, 3), reads(3, 9), reads(4, 5), claim(9, 10)]}),
    (Rule.PERMITS, {"claims": [permit(1, 3, 0), permit(1, 3, 1), permit(2, 2, 1), permit(3, 4, 0)]}),
    (Rule.ORDER, {"claims": [claim(1, 9, 80), claim(2, 3, 79, asked=1)]}),
    (Rule.SUCCESSION, {"claims": [claim(1, 3, 80), claim(2.999, 4, 79)]}),
    (Rule.PERMITS, {"claims": [permit(1, 5, 0), permit(2, 5, 1), permit(3, 5, 0, names=("other",))]}),
    *((rule, {"claims": APART}) for rule in (Rule.UNIQUE, Rule.ORDER, Rule.SUCCESSION)),
    (Rule.UNIQUE, {"claims": [claim(1, 2, 71), claim(1, 2, 71, names=("other",)), claim(3, 4), claim(5, 6)]}),
    (Rule.UNIQUE, {"claims": TOGETHER}),
    *(
        (rule, {"claims": [claim(1, 2, 70, mode="write"), reads(2, 3, 70, asked=1)]})
        for rule in (Rule.UNIQUE, Rule.ORDER, Rule.SUCCESSION)
    ),
    (Rule.UNCHANGED, {"claims": [EARLIER, reads(3, 4, 73, owner=B), UNCHANGED]}),
    (Rule.MEANWHILE, {"claims": [EARLIER, reads(3, 4, 73, owner=B), UNCHANGED]}),
    (Rule.UNCHANGED, {"claims": [EARLIER, BETWEEN, WAITED]}),
    *(
        (Rule.OWNERSHIP, {"effects": [one]})
        for one in (
            effect("acquire", None, (A, 10.0)),
            effect("repair", None, (A, 10.0)),
            effect("repair", None, (A, 10.0)),
            effect("extend", (A, 5.0), (A, 10.0)),
            effect("extend", (A, 5.0), (A, 5.0 - 1e-9)),
            effect("extend", (B, 5.0), (B, 5.0)),
            effect("extend", (B, None), (B, None)),
            effect("extend", None, None),
            effect("slots-extend", (A, 5.0), None, slot=1),
            effect("slots-repair", None, (A, 10.0), slot=1),
            effect("slots-extend", (A, 5.0), (A, 4.9985), slot=1, shares=True),
            effect("release", (A, None), None),
            effect("release", (B, 5.0), (B, 5.0 + 1e-9)),
        )
    ),
    *(
        (Rule.RESOURCE, {"claims": GUARDED, "writes": writes})
        for writes in (
            [write(5.0, LATER), write(6.0, EARLIER, accepted=False)],
            [write(2.0, EARLIER), write(5.0, LATER)],
            [write(2.0, EARLIER), write(3.0, EARLIER)],
            [write(5.0, LATER), write(6.0, EARLIER, name="other")],
            [write(5.0, LATER, accepted=False, owner=C)],
            [READS_LATE, write(6.0, EARLIER, reads=True)],
        )
    ),
    *(
        (Rule.RESOURCE, {"claims": [EARLIER, BESIDE], "writes": [write(5.0, BESIDE), one]})
        for one in (write(6.0, EARLIER), write(6.0, EARLIER, accepted=False))
    ),
    (Rule.STEADY, {"looks": [Look(at=3.0, client=1, name="bill", first=6, then=6)]}),
    (Rule.LOST_UPDATE, {"updates": [*RISING, Update(at=9.0, client=1, name="other", read=0, wrote=1)]}),
    *(
        (Rule.LIVENESS, late(one))
        for one in (
            acquire(90, 110),
            acquire(120, 130),
            acquire(90, 100, Outcome.FAIL),
            acquire(90, 99, Outcome.UNKNOWN),
            acquire(120, 125, Outcome.UNKNOWN),
            acquire(195, None, Outcome.UNKNOWN),
            acquire(120, 123, Outcome.FAIL, kind="try"),
            acquire(120, 199, Outcome.FAIL, kind="release"),
        )
    ),
    (Rule.LIVENESS, {"operations": [acquire(1, 2, Outcome.FAIL)], "ended": 50.0}),
    *(
        (Rule.LOCAL_ORDER, {"operations": [acquire(1, 9, mode=mode), later]})
        for mode, later in (
            ("lock", acquire(2, 9)),
            ("lock", acquire(2, 8, client=2)),
            ("lock", acquire(2, 8, names=("other",))),
            ("lock", acquire(2, 8, names=("bill", "other"))),
            ("lock", acquire(2, 8, Outcome.FAIL, kind="try")),
            ("lock", acquire(2, 8, Outcome.UNKNOWN)),
            ("lock", acquire(2, 8, kind="extend")),
            ("read", acquire(2, 8, mode="read")),
            ("write", acquire(2, 5.999, mode="read")),
        )
    ),
    (Rule.LOCAL_ORDER, {"operations": [acquire(1, 2), acquire(2, 9, task=3), acquire(2, 5, task=4)]}),
    (Rule.TURNS, turns((3, 2), (5, 3))),
    (Rule.TURNS, turns((1.05, 2), (5, 2))),
    (Rule.TURNS, turns((3, 2), (9, 2))),
    (Rule.TURNS, turns((3, 2), (4, 1), (5, 2))),
    (Rule.TURNS, turns((3, 2), (5, 2)) | {"operations": [acquire(1, 9)]}),
]
"""What breaks no rule."""


@pytest.mark.parametrize(("rule", "records", "words"), FOUND)
def test_what_breaks_a_rule_is_found(rule, records, words):
    """It is found once, and reported with clients, tasks, times, fences and owners."""
    [violation] = found(rule, **records)
    assert violation.rule is rule
    assert [word for word in words if word not in violation.text] == [], violation.text


@pytest.mark.parametrize(("rule", "records"), PASSED)
def test_what_breaks_no_rule_passes(rule, records):
    """What touches, is shared rightly, or is about other names, clients or times is let pass."""
    assert found(rule, **records) == []


def test_local_order_of_readers():
    """A reader behind readers may overtake them, but not a writer between."""
    writer, reader = acquire(20.5, 41, task=4, mode="write"), acquire(21, 22, mode="read")
    calls = [acquire(20, 40, mode="read"), writer, reader]
    assert [violation.at for violation in found(Rule.LOCAL_ORDER, operations=calls)] == [22]
    calls[1] = replace(writer, mode="read")
    assert found(Rule.LOCAL_ORDER, operations=calls) == []
    for names in (("bill",), ("bill", "other")):
        patient = acquire(17, 50, mode="write", names=names)
        assert found(Rule.LOCAL_ORDER, operations=[patient, calls[0], writer, calls[2]]) == [], (
            "it lets all readers in"
        )
    elsewhere = replace(patient, names=("other",))
    assert found(Rule.LOCAL_ORDER, operations=[elsewhere, calls[0], writer, calls[2]]) != []


@pytest.mark.parametrize(
    ("claims", "fences"),
    [
        ([claim(1, 2, 80), claim(3, 4, 71), claim(5, 6, 75)], [80, 80]),
        ([claim(1, 2, 80), claim(3, 4, 80)], [80]),
    ],
)
def test_order_is_by_the_greatest_before(claims, fences):
    """Not only the last grant counts; a fence given before is not greater than itself."""
    assert [violation.claims[0].fence for violation in found(Rule.ORDER, claims=claims)] == fences


# -- the whole ---------------------------------------------------------------------------------


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
    history.updates = UPDATES
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
