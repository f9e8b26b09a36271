"""What the checks find in a history, and what they let pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.checks import Rule, Violation, check
from tests.simulation.history import (
    Claim,
    Effect,
    History,
    Look,
    Mode,
    Operation,
    Outcome,
    Remark,
    Update,
    Write,
)

BOUND: Final = 10.0

A, B = b"a" * 40 + b":host", b"b" * 40 + b":host"
KEY: Final = b"redlock:bill"


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


def found(rule: Rule, **records: Any) -> list[Violation]:
    """Check a history for one rule."""
    return check(History(nodes=3, clients=9, **records), rules=[rule], bound=BOUND)


def broken(rule: Rule, **records: Any) -> str:
    """Check a history for one rule, which is broken once, and return what is said about it."""
    [violation] = found(rule, **records)
    assert violation.rule is rule
    return violation.text


def assert_said(text: str, *words: str) -> None:
    """Fail unless all words are in a text."""
    assert [word for word in words if word not in text] == [], text


# -- claims ------------------------------------------------------------------------------------


def test_exclusion():
    """Two clients that hold a name at once are told with their tasks, times and fences."""
    one, two = claim(1.0, 3.0, 71), claim(2.5, 4.0, 72, client=2, task=5)
    [violation] = found(Rule.EXCLUSION, claims=[two, one])
    assert violation.at == 2.5
    assert violation.claims == (one, two)
    assert_said(violation.text, "'bill'", "from 2.5 s to 3 s", "client 1 (task 0)", "client 2 (task 5)")
    assert_said(violation.text, "from 1 s to 3 s with fence 71", "from 2.5 s to 4 s with fence 72")


@pytest.mark.parametrize(
    "claims",
    [
        [claim(1, 3), claim(3, 4)],
        [claim(1, 3), claim(2, 4, names=("other",))],
        [claim(1, 3), claim(2, 2)],
        [claim(1, 3), claim(2, 1.5)],
        [claim(2, 2), claim(2, 3), claim(3, 3)],
        [claim(1, 3, stopped=9.0), claim(3, 4, asked=0.0)],
    ],
    ids=["touching", "other names", "no time", "over before", "no time at the ends", "waits and overruns"],
)
def test_exclusive(claims):
    """Claims that only touch, have nothing in common or last no time exclude each other."""
    assert found(Rule.EXCLUSION, claims=claims) == []


@pytest.mark.parametrize(
    ("claims", "times"),
    [
        ([claim(1, 3), claim(1, 3)], [1]),
        ([claim(1, 9), claim(2, 3), claim(4, 5)], [2, 4]),
        ([claim(1, 3), claim(2, 9), claim(4, 5)], [2, 4]),
        ([claim(1, 3), claim(2.999, 4)], [2.999]),
    ],
    ids=["the same time", "under a long one", "a chain", "a moment"],
)
def test_each_claim_that_does_not_exclude(claims, times):
    """Every claim that begins while another lasts is found, not only neighbours."""
    assert [violation.at for violation in found(Rule.EXCLUSION, claims=claims)] == times


@pytest.mark.parametrize(
    ("claims", "times"),
    [
        ([reads(1, 5), reads(2, 6)], []),
        ([reads(1, 5), claim(2, 3)], [2]),
        ([claim(1, 9, mode="write"), reads(2, 3), reads(4, 5)], [2, 4]),
        ([reads(1, 9), reads(2, 3), claim(4, 5, mode="write"), reads(4.5, 6)], [4, 4.5]),
        ([claim(1, 3), reads(3, 9), claim(9, 10)], []),
        ([claim(1, 3, mode="write"), reads(3, 9), reads(4, 5)], []),
    ],
    ids=["readers", "a mutex", "under a writer", "under a long one", "touching", "after a downgrade"],
)
def test_readers_share_a_name(claims, times):
    """Readers are together; whatever is alone excludes all of them, and all of them exclude it."""
    assert [violation.at for violation in found(Rule.EXCLUSION, claims=claims)] == times


@pytest.mark.parametrize(
    ("claims", "times"),
    [
        ([permit(1, 5, 0), permit(2, 6, 1)], []),
        ([permit(1, 5, 0), permit(2, 6, 0)], [2]),
        ([permit(1, 5, 0), permit(2, 6, 1), permit(3, 4, 1)], [3]),
        ([permit(1, 5, 0), permit(5, 6, 0)], []),
    ],
    ids=["two slots", "one slot", "one of two", "touching"],
)
def test_a_slot_has_one_holder(claims, times):
    """Claims of one semaphore exclude each other where they have the same slot."""
    assert [violation.at for violation in found(Rule.EXCLUSION, claims=claims)] == times


def test_more_than_permits():
    """Those that hold at once are counted, whatever their slots, and told."""
    claims = [permit(1, 5, 0), permit(2, 6, 1, client=2), permit(3, 4, 1, client=3)]
    assert_said(
        broken(Rule.PERMITS, claims=claims), "3 held 'bill' at 3 s", "there are 2", "client 3 (task 0)"
    )


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ([permit(1, 3, 0), permit(1, 3, 1), permit(3, 4, 0)], 0),
        ([permit(1, 5, 0), permit(2, 5, 1), permit(3, 5, 0, names=("other",))], 0),
        ([permit(1, 5, 0), permit(1, 5, 1), permit(2, 3, 2, permits=3), permit(3, 4, 1)], 1),
        ([permit(1, 5, 0), permit(1, 5, 1), permit(2, 2, 1)], 0),
        ([permit(1, 5, 2)], 1),
        ([permit(1, 5, -1)], 1),
        ([claim(1, 5), claim(2, 6)], 0),
    ],
    ids=["touching", "other names", "a greater number", "no time", "beyond", "unknown", "mutexes"],
)
def test_as_many_as_permits(claims, wrong):
    """The greatest number that one of the holders says counts, while it holds."""
    assert len(found(Rule.PERMITS, claims=claims)) == wrong


def test_fences_of_slots():
    """Each slot has fences of its own, which rise."""
    apart = [permit(1, 2, 0, 74), permit(3, 4, 1, 74), permit(5, 6, 1, 76), permit(7, 8, 0, 78)]
    for rule in (Rule.UNIQUE, Rule.ORDER, Rule.SUCCESSION):
        assert found(rule, claims=apart) == []
    again = permit(9, 10, 0, 74)
    assert_said(broken(Rule.UNIQUE, claims=[*apart, again]), "'bill[0]'")
    assert_said(broken(Rule.ORDER, claims=[*apart, again]), "'bill[0]'")
    assert_said(broken(Rule.SUCCESSION, claims=[*apart, again]), "held it from 7 s to 8 s with fence 78")


def test_each_name_of_a_claim():
    """A claim on several names excludes others from each of them."""
    both = claim(1, 5, names=("bill", "stock"))
    text = broken(Rule.EXCLUSION, claims=[both, claim(2, 3, names=("stock", "till"))])
    assert_said(text, "two held 'stock' from")


def test_unique():
    """A fence that is given again is told with both claims."""
    claims = [claim(1, 2, 71), claim(3, 4, 72), claim(5, 6, 71, client=2)]
    text = broken(Rule.UNIQUE, claims=claims)
    assert_said(text, "71", "'bill'", "client 1 (task 0) at 1 s", "client 2 (task 0) at 5 s")


def test_unique_for_its_name():
    """The same fence may be given for two names, and none is given many times."""
    claims = [claim(1, 2, 71), claim(1, 2, 71, names=("other",)), claim(3, 4), claim(5, 6)]
    assert found(Rule.UNIQUE, claims=claims) == []


def test_readers_share_a_fence():
    """Readers between two writers have one, which no writer has but the one that has become a reader."""
    together = [reads(1, 2, 71), reads(1, 2, 71, client=2, owner=B), reads(3, 4, 71, client=3, owner=B)]
    assert found(Rule.UNIQUE, claims=together) == []
    assert found(Rule.UNIQUE, claims=[claim(1, 2, 70, mode="write"), reads(2, 4, 70)]) == []
    assert found(Rule.UNIQUE, claims=[claim(1, 2, 70, mode="write"), reads(3, 4, 70, owner=B)]) != []
    assert found(Rule.UNIQUE, claims=[*together, claim(5, 6, 71, client=4)]) != []


def test_order():
    """A client that asks after a greater fence has been given is told with both."""
    given_before = claim(1.0, 9.0, 80, client=3)
    late = claim(2.0, 3.0, 79, asked=1.5)
    [violation] = found(Rule.ORDER, claims=[late, given_before])
    assert violation.claims == (given_before, late)
    assert_said(violation.text, "client 1 (task 0) asked for 'bill' at 1.5 s", "got fence 79 at 2 s")
    assert_said(violation.text, "client 3 (task 0) had been given fence 80 at 1 s")


def test_order_is_by_the_greatest_before():
    """Not only the last grant counts."""
    claims = [claim(1, 2, 80), claim(3, 4, 71), claim(5, 6, 75)]
    assert [violation.claims[0].fence for violation in found(Rule.ORDER, claims=claims)] == [80, 80]


def test_order_of_equal_fences():
    """A fence given before is not greater than itself."""
    assert_said(broken(Rule.ORDER, claims=[claim(1, 2, 80), claim(3, 4, 80)]), "80")


@pytest.mark.parametrize(
    "claims",
    [
        [claim(1, 9, 80), claim(2, 3, 79, asked=1)],
        [claim(1, 9, 80), claim(2, 3, 79, asked=0.5)],
        [claim(1, 2, 80), claim(3, 4, 81)],
        [claim(1, 2, 80), claim(3, 4, None), claim(5, 6, 81)],
    ],
    ids=["asked at the moment of the grant", "asked before", "rises", "without a fence between"],
)
def test_ordered(claims):
    """A client that asks before another's grant, or at that very moment, may get a lesser fence."""
    assert found(Rule.ORDER, claims=claims) == []


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ([reads(1, 2, 71), reads(3, 4, 71, owner=B)], False),
        ([reads(1, 2, 73), reads(3, 4, 71, owner=B)], True),
        ([reads(1, 2, 71), claim(3, 4, 71, owner=B)], True),
        ([claim(1, 2, 70), reads(3, 4, 70, owner=B)], True),
        ([claim(1, 2, 70, mode="write"), reads(2, 3, 70, asked=1)], False),
    ],
    ids=["the same", "smaller", "a writer's", "a reader's", "a downgrade"],
)
def test_order_of_readers(claims, wrong):
    """A reader's fence is greater than each earlier writer's, and not smaller than an earlier reader's."""
    assert [violation.claims for violation in found(Rule.ORDER, claims=claims)] == [tuple(claims)] * wrong


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ([reads(1, 2, 73), reads(3, 4, 71, owner=B, asked=0)], False),
        ([reads(1, 2, 73), claim(3, 4, 73, owner=B, asked=0)], True),
        ([claim(1, 2, 72), reads(3, 4, 71, owner=B, asked=0)], True),
        ([claim(1, 2, 70, mode="write"), reads(2, 3, 70, asked=0)], False),
    ],
    ids=["a reader after a reader", "a writer", "a reader", "a downgrade"],
)
def test_succession_of_readers(claims, wrong):
    """Among readers, which need not wait for each other, the one that asked first may be the later one."""
    assert [violation.claims for violation in found(Rule.SUCCESSION, claims=claims)] == [
        tuple(claims)
    ] * wrong


def test_unchanged():
    """A writer that is told that none came since a read lease is told so wrongly, if one had come."""
    before, between = claim(1, 2, 70), claim(3, 4, 74, client=2, owner=B)
    told = claim(5, 6, 76, mode="write", unchanged_since=71, client=3, owner=b"c" * 40, asked=4.5)
    for rule in (Rule.UNCHANGED, Rule.MEANWHILE):
        assert found(rule, claims=[before, reads(3, 4, 73, owner=B), told]) == []
        assert_said(
            broken(rule, claims=[before, between, told]), "client 3", "since fence 71", "with fence 74"
        )
    waited = replace(told, asked=2.5)
    assert found(Rule.UNCHANGED, claims=[before, between, waited]) == []
    assert_said(broken(Rule.MEANWHILE, claims=[before, between, waited]), "client 2", "from 3 s to 4 s")


def test_succession():
    """A client that has waited through another's claim still gets a greater fence."""
    claims = [claim(1, 3, 80), claim(3, 4, 79, client=2, asked=0.5)]
    text = broken(Rule.SUCCESSION, claims=claims)
    assert_said(text, "'bill'", "client 1", "from 1 s to 3 s with fence 80", "then client 2", "with fence 79")
    assert found(Rule.ORDER, claims=claims) == [], "it had asked before"


def test_no_succession():
    """Claims that overlap, or lasted no time, do not follow each other."""
    assert found(Rule.SUCCESSION, claims=[claim(1, 3, 80), claim(2.999, 4, 79)]) == []
    assert found(Rule.SUCCESSION, claims=[claim(1, 1, 80), claim(2, 3, 79)]) == []


# -- the dumb twins ----------------------------------------------------------------------------

SETTINGS: Final = settings(derandomize=True)

instants = st.integers(0, 12).map(float)


@st.composite
def claims_on_one_name(draw):
    """Draw claims whose times and fences often coincide."""
    claims = []
    for number in range(draw(st.integers(0, 9))):
        asked, since = sorted((draw(instants), draw(instants)))
        fence, mode = draw(st.none() | st.integers(0, 6)), draw(st.sampled_from(get_args(Mode)))
        more = {"asked": asked, "client": number, "owner": b"%d" % number, "mode": mode}
        if mode == "permit":
            more |= {"slot": draw(st.integers(0, 2)), "permits": draw(st.integers(1, 3))}
        claims.append(claim(since, draw(instants), fence, **more))
    return claims


def pairs(claims):
    """Return all ordered pairs of different claims."""
    return [(one, two) for one in claims for two in claims if one is not two]


def may_share(one, two):
    """Return whether two claims may be there at once."""
    return one.mode == two.mode == "read" or one.slot != two.slot


def falls(one, two):
    """Return whether the second has a fence, and not a greater one, or, of two readers, a smaller one."""
    if None in (one.fence, two.fence) or one.slot != two.slot:
        return False
    return two.fence < one.fence or (two.fence == one.fence and not may_share(one, two))


def victims(rule, claims):
    """Return which claims the checks find, and assert that what they are blamed for is true."""
    violations = found(rule, claims=claims)
    assert all(one is not two for one, two in (violation.claims for violation in violations))
    assert len({two.client for _, two in (violation.claims for violation in violations)}) == len(violations)
    return [violation.claims for violation in violations]


@SETTINGS
@given(claims_on_one_name())
def test_exclusion_has_a_twin(claims):
    """The sweep finds those that comparing each with each finds."""
    together = [
        (one, two)
        for one, two in pairs(claims)
        if max(one.since, two.since) < min(one.until, two.until) and not may_share(one, two)
    ]
    place = {one.client: (one.since, number) for number, one in enumerate(claims)}
    expected = {two.client for one, two in together if place[one.client] < place[two.client]}

    blamed = victims(Rule.EXCLUSION, claims)

    assert {two.client for _, two in blamed} == expected
    assert all(pair in together for pair in blamed)


@SETTINGS
@given(claims_on_one_name())
def test_permits_have_a_twin(claims):
    """The sweep finds those that counting all holders at each beginning finds."""
    held = [
        (place, one) for place, one in enumerate(claims) if one.slot is not None and one.since < one.until
    ]
    expected = {one.client for _, one in held if one.slot >= one.permits}
    for place, claim in held:
        inside = [
            one
            for before, one in held
            if one.until > claim.since and (one.since, before) <= (claim.since, place)
        ]
        if len(inside) > max(one.permits for one in inside):
            expected.add(claim.client)

    assert {violation.claims[-1].client for violation in found(Rule.PERMITS, claims=claims)} == expected


@SETTINGS
@given(claims_on_one_name())
def test_order_has_a_twin(claims):
    """The merge finds those that comparing each with each finds."""
    wrong = [(one, two) for one, two in pairs(claims) if one.since < two.asked and falls(one, two)]

    blamed = victims(Rule.ORDER, claims)

    assert {two.client for _, two in blamed} == {two.client for _, two in wrong}
    assert all(pair in wrong for pair in blamed)


@SETTINGS
@given(claims_on_one_name())
def test_succession_has_a_twin(claims):
    """The merge finds those that comparing each with each finds."""
    real = [one for one in claims if one.since < one.until]
    follow = [(one, two) for one, two in pairs(real) if one.until <= two.since and not may_share(one, two)]
    wrong = [(one, two) for one, two in follow if falls(one, two)]

    blamed = victims(Rule.SUCCESSION, claims)

    assert {two.client for _, two in blamed} == {two.client for _, two in wrong}
    assert all(pair in wrong for pair in blamed)


# -- keys --------------------------------------------------------------------------------------


def effect(
    command: str, before: tuple[bytes, float | None] | None, after: Any, owner: bytes = A, **more: Any
) -> Effect:
    """Make what a command of A did, from a value and its ttl to another such pair."""
    (value, ttl), (new, new_ttl) = before or (None, None), after or (None, None)
    return Effect(
        at=2.5,
        node=1,
        client=4,
        command=command,
        owner=owner,
        key=KEY,
        before=value,
        after=new,
        ttl_before=ttl,
        ttl_after=new_ttl,
        **more,
    )


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (effect("release", (B, 5.0), None), "deleted"),
        (effect("acquire", (B, 5.0), (A, 10.0)), "overwrote"),
        (effect("extend", (B, 5.0), (B, 10.0)), "extended"),
        (effect("extend", (B, 5.0), (B, None)), "extended"),
        (effect("top-up", (B, 5.0), (B, 4.0)), "shortened"),
        (effect("raise", (B, None), (B, 4.0)), "shortened"),
    ],
    ids=lambda one: one.command if isinstance(one, Effect) else one,
)
def test_key_of_another(one, said):
    """A command that touches another owner's key is told with both owners, the node and the time."""
    text = broken(Rule.OWNERSHIP, effects=[one], claims=[claim(1, 2, owner=B, client=7)])
    assert_said(text, f"{one.command} of client 4 (owner aaaaaaaaaaaa…) {said} key 'redlock:bill' on node 1")
    assert_said(text, "at 2.5 s", "belonged to client 7 (owner bbbbbbbbbbbb…)")


@pytest.mark.parametrize(
    ("one", "said"),
    [
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
    ],
)
def test_own_key(one, said):
    """A command that makes, shortens or deletes what is its own as it must not is told."""
    text = broken(Rule.OWNERSHIP, effects=[one])
    assert_said(text, f"{one.command} of client 4", f"{said} key 'redlock:bill' on node 1 at 2.5 s")


@pytest.mark.parametrize(
    "one",
    [
        effect("acquire", None, (A, 10.0)),
        effect("top-up", None, (A, 10.0)),
        effect("top_up", None, (A, 10.0)),
        effect("extend", (A, 5.0), (A, 10.0)),
        effect("extend", (A, 5.0), (A, 5.0)),
        effect("extend", (A, 5.0), (A, 5.0 - 1e-9)),
        effect("extend", (B, 5.0), (B, 5.0)),
        effect("extend", (B, None), (B, None)),
        effect("extend", None, None),
        effect("slots-extend", (A, 5.0), None, slot=1),
        effect("slots-top-up", None, (A, 10.0), slot=1),
        effect("slots-extend", (A, 5.0), (A, 4.9985), slot=1, shares=True),
        effect("release", (A, 5.0), None),
        effect("release", (A, None), None),
        effect("release", (B, 5.0), (B, 5.0 + 1e-9)),
    ],
)
def test_rightful_effects(one):
    """What commands are for is let pass, and so is what changes nothing."""
    assert found(Rule.OWNERSHIP, effects=[one]) == []


def test_unknown_owner():
    """An owner that never got a claim is unknown."""
    assert_said(
        broken(Rule.OWNERSHIP, effects=[effect("release", (B, 5.0), None)]), "belonged to an unknown owner"
    )


# -- resources ---------------------------------------------------------------------------------


C: Final = b"c" * 40 + b":host"

EARLIER, LATER = claim(1.0, 2.0, 71), claim(4.0, 9.0, 72, owner=B, client=2, asked=3.0)
"""Two claims of which the second one was asked for when the first one had been granted."""


def write(at: float, one: Claim, *, accepted: bool = True, **more: Any) -> Write:
    """Make a write at a guarded resource under a claim."""
    terms = {"client": one.client, "name": "bill", "owner": one.owner, "fence": one.fence}
    return Write(at=at, accepted=accepted, **(terms | more))


def test_resource():
    """A write that is accepted after one of a client that asked later is told with both."""
    writes = [write(6.0, EARLIER), write(5.0, LATER)]
    text = broken(Rule.RESOURCE, claims=[EARLIER, LATER], writes=writes)
    assert_said(text, "'bill' accepted fence 71 from client 1 at 6 s", "client 2", "asked later, at 3 s")


@pytest.mark.parametrize("before", [[], [write(2.0, EARLIER)]], ids=["first", "after an earlier one"])
def test_resource_refuses_for_nothing(before):
    """A write that is refused although no later one has written is told."""
    writes = [*before, write(5.0, LATER, accepted=False)]
    text = broken(Rule.RESOURCE, claims=[EARLIER, LATER], writes=writes)
    assert_said(text, "'bill' refused fence 72 from client 2 at 5 s")


@pytest.mark.parametrize(
    "writes",
    [
        [write(5.0, LATER), write(6.0, EARLIER, accepted=False)],
        [write(2.0, EARLIER), write(5.0, LATER)],
        [write(2.0, EARLIER), write(3.0, EARLIER)],
        [write(5.0, LATER), write(6.0, EARLIER, name="other")],
        [write(5.0, LATER, accepted=False, owner=C)],
    ],
    ids=["late", "in order", "again", "another resource", "no claim"],
)
def test_resource_is_guarded(writes):
    """A late writer is refused, all others are accepted; of one without a known claim nothing is known."""
    assert found(Rule.RESOURCE, claims=[EARLIER, LATER], writes=writes) == []


@pytest.mark.parametrize("accepted", [True, False])
def test_resource_lets_either_be_first(accepted):
    """Of two that asked side by side, either may have the greater fence."""
    beside = replace(LATER, asked=0.5)
    writes = [write(5.0, beside), write(6.0, EARLIER, accepted=accepted)]
    assert found(Rule.RESOURCE, claims=[EARLIER, beside], writes=writes) == []


def test_resource_of_readers():
    """A reader's fence keeps late writers out, and no reader; a reader is refused after a later writer."""
    one, two = replace(EARLIER, mode="read"), replace(LATER, mode="read")
    claims = [EARLIER, LATER, one, two]
    late = [write(5.0, two, reads=True), write(6.0, EARLIER)]
    assert_said(broken(Rule.RESOURCE, claims=claims, writes=late), "accepted fence 71")
    assert found(Rule.RESOURCE, claims=claims, writes=[*late[:1], write(6.0, one, reads=True)]) == []
    for_nothing = [*late[:1], write(6.0, one, reads=True, accepted=False)]
    assert_said(broken(Rule.RESOURCE, claims=claims, writes=for_nothing), "refused fence 71")
    after = [write(5.0, LATER), write(6.0, one, reads=True)]
    assert_said(broken(Rule.RESOURCE, claims=claims, writes=after), "accepted fence 71")


def test_steady():
    """What was written while a reader was at it is told with both values."""
    looks = [Look(at=3.0, client=1, name="bill", first=6, then=6)]
    assert found(Rule.STEADY, looks=looks) == []
    looks += [Look(at=4.0, client=2, name="bill", first=6, then=7)]
    assert_said(broken(Rule.STEADY, looks=looks), "'bill'", "client 2 read 6, and 7 at 4 s")


def test_lost_update():
    """A value that is written twice is told with both writers."""
    updates = [Update(at=float(at), client=at, name="bill", read=6, wrote=7) for at in (1, 2)]
    text = broken(Rule.LOST_UPDATE, updates=updates)
    assert_said(text, "'bill'", "client 2 wrote 7 at 2 s", "client 1 had at 1 s")


def test_no_lost_update():
    """Values that rise, and the same value of two counters, are let pass."""
    rising = [Update(at=float(at), client=1, name="bill", read=at, wrote=at + 1) for at in range(3)]
    other = Update(at=9.0, client=1, name="other", read=0, wrote=1)
    assert found(Rule.LOST_UPDATE, updates=[*rising, other]) == []


# -- liveness and leaks ------------------------------------------------------------------------


def acquire(began: float, ended: float | None, outcome: Outcome = Outcome.OK, **more: Any) -> Operation:
    """Make an acquire."""
    terms = {"client": 1, "task": 2, "kind": "acquire", "names": ("bill",)}
    return Operation(began=began, ended=ended, outcome=outcome, **(terms | more))


HEALED: Final = {"healed_at": 100.0, "ended": 200.0}


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (acquire(90, 110.5), "succeeded only at 110.5 s"),
        (acquire(120, 130.5), "succeeded only at 130.5 s"),
        (acquire(100, None, Outcome.UNKNOWN), "never ended"),
        (acquire(120, 121, Outcome.FAIL, note="LockTakenError"), "failed at 121 s (LockTakenError)"),
        (acquire(90, 100.5, Outcome.FAIL), "failed at 100.5 s"),
        (acquire(120, 130.5, Outcome.UNKNOWN), "was given up at 130.5 s"),
    ],
)
def test_liveness(operation, said):
    """An acquire that does not succeed in time after all faults is told with what became of it."""
    text = broken(Rule.LIVENESS, operations=[operation], **HEALED)
    assert_said(text, "client 1 (task 2) asked for 'bill' at", "over at 100 s", said)
    assert_said(text, f"10 s were allowed from {max(operation.began, 100.0):g} s")


@pytest.mark.parametrize(
    "operation",
    [
        acquire(90, 110),
        acquire(120, 130),
        acquire(90, 100, Outcome.FAIL),
        acquire(90, 99, Outcome.UNKNOWN),
        acquire(120, 125, Outcome.UNKNOWN),
        acquire(195, None, Outcome.UNKNOWN),
        acquire(120, 123, Outcome.FAIL, kind="try"),
        acquire(120, 199, Outcome.FAIL, kind="release"),
    ],
    ids=[
        "in time",
        "later in time",
        "over",
        "killed",
        "cancelled early",
        "run ended",
        "impatient",
        "no acquire",
    ],
)
def test_alive(operation):
    """What succeeds in time, was over before or was not given the time is let pass."""
    assert found(Rule.LIVENESS, operations=[operation], **HEALED) == []


def test_never_healed():
    """A run whose faults never end promises nothing."""
    assert found(Rule.LIVENESS, operations=[acquire(1, 2, Outcome.FAIL)], ended=50.0) == []


@pytest.mark.parametrize("earlier", [acquire(1, 9), acquire(1, None, Outcome.UNKNOWN, kind="try")])
def test_local_order(earlier):
    """A call that is granted while an earlier one of its process waits is told, whatever comes of that."""
    text = broken(Rule.LOCAL_ORDER, operations=[acquire(2, 8, task=3, kind="try"), earlier])
    assert_said(
        text, "client 1 (task 3) asked for 'bill' at 2 s and got it at 8 s", "client 1 (task 2)", "1 s"
    )


def test_local_order_of_calls_at_one_moment():
    """Which of them came first is not known; both came after what waits longer."""
    at_once = [acquire(2, 9, task=3), acquire(2, 5, task=4)]
    assert found(Rule.LOCAL_ORDER, operations=[acquire(1, 2), *at_once]) == []
    text = broken(Rule.LOCAL_ORDER, operations=[acquire(1, 6), *at_once])
    assert_said(text, "(task 4)", "since 1 s")


@pytest.mark.parametrize(
    ("first", "then", "wrong"),
    [("read", "read", False), ("read", "write", True), ("write", "read", True), ("lock", "read", True)],
)
def test_local_order_of_readers(first, then, wrong):
    """Readers may overtake readers; they overtake no writer that waits, and none overtakes them."""
    calls = [acquire(20, 40, mode=first), acquire(21, 22, task=3, mode=then)]
    assert bool(found(Rule.LOCAL_ORDER, operations=calls)) is wrong
    between = acquire(20.5, 41, task=4, mode="read")
    assert bool(found(Rule.LOCAL_ORDER, operations=[*calls, between])) is (wrong or then == "write")


@pytest.mark.parametrize(
    "later",
    [
        acquire(2, 9),
        acquire(2, 8, client=2),
        acquire(2, 8, names=("other",)),
        acquire(2, 8, names=("bill", "other")),
        acquire(2, 8, Outcome.FAIL, kind="try"),
        acquire(2, 8, Outcome.UNKNOWN),
        acquire(2, 8, kind="extend"),
    ],
    ids=[
        "in order",
        "another process",
        "another name",
        "several names",
        "refused",
        "cancelled",
        "no acquire",
    ],
)
def test_locally_in_order(later):
    """Calls of other processes, for other names, or without a grant overtake no call."""
    assert found(Rule.LOCAL_ORDER, operations=[acquire(1, 9), later]) == []


@pytest.mark.parametrize(
    ("holds", "wrong"),
    [
        ([(3, 2), (5, 3)], False),
        ([(3, 2), (5, 2)], True),
        ([(1.05, 2), (5, 2)], False),
        ([(3, 2), (9, 2)], False),
        ([(3, 2), (4, 1), (5, 2)], False),
    ],
    ids=["one each", "two of one", "before its place was known", "when it had got it", "since it had it"],
)
def test_turns(holds, wrong):
    """In line, a call waits for one hold of each other process, since its own had the lock."""
    claims = [claim(since, since + 0.5, client=client, mode="fair") for since, client in holds]
    assert bool(found(Rule.TURNS, operations=[acquire(1, 9, mode="fair")], claims=claims)) is wrong
    assert found(Rule.TURNS, operations=[acquire(1, 9)], claims=claims) == []


@pytest.mark.parametrize(("rule", "field"), [(Rule.LEAK, "leaks"), (Rule.COMPLAINT, "complaints")])
def test_remarks(rule, field):
    """What was left, or met, is told each for itself, at its time."""
    remarks = [Remark(at=7.0, what="a key on node 2"), Remark(at=8.5, what="client 1\n was late")]
    violations = found(rule, **{field: remarks}, ended=9.0)
    assert [violation.at for violation in violations] == [7.0, 8.5]
    assert_said(violations[0].text, "at 7 s", "a key on node 2")
    assert_said(violations[1].text, "at 8.5 s", r"client 1\n was late")
    assert violations[0].text.startswith("left") == (rule is Rule.LEAK)


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
    history.updates = [Update(at=float(at), client=at, name="bill", read=6, wrote=7) for at in (0, 1)]
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


@pytest.mark.parametrize("rule", Rule)
def test_chosen_rules(rule):
    """Only what was asked for is checked, and the others do not depend on it."""
    history = everything()
    every = Counter(violation.rule for violation in check(history, rules=Rule, bound=BOUND))
    assert set(every) == set(Rule)
    without = check(history, rules=set(Rule) - {rule}, bound=BOUND)
    assert Counter(violation.rule for violation in without) == every - Counter({rule: every[rule]})
    assert {violation.rule for violation in check(history, rules=[rule], bound=BOUND)} == {rule}


def test_nothing_happened():
    """A history without anything breaks nothing."""
    assert check(History(nodes=3, clients=2), rules=Rule, bound=BOUND) == []


def test_hostile_name():
    """A name is written so that it cannot disturb a terminal."""
    names = ("\x1b[2J\n\u202e",)
    [violation] = found(
        Rule.UNIQUE, claims=[claim(1, 2, 5, names=names), replace(claim(3, 4, 5), names=names)]
    )
    assert violation.text.isascii()
    assert violation.text.isprintable()
    assert str(violation) == f"unique: {violation.text}"
