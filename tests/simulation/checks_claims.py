"""The rules of the claims on one name, or on one slot of a semaphore.

Claims are intervals and their fences are numbers, so sorting and one sweep decide each rule; no search for
an order that would explain the history is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Final, Literal

from tests.simulation.checks_words import Rule, Violation
from tests.simulation.history import Claim
from tests.simulation.history_words import instant, kept, named, who, with_fence


def by_name(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the claims on each name, or slot, in the order in which they were granted."""
    found: dict[str, list[Claim]] = {}
    for claim in sorted(claims, key=attrgetter("since")):
        for name in claim.places:
            found.setdefault(name, []).append(claim)
    return found


def _believed(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Leave out claims that were over when they were granted."""
    return (claim for claim in claims if claim.since < claim.until)


def exclusion(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find claims that began while another one lasted; one may begin at the moment where another ends.

    Readers share a name.
    """
    longest: Claim | None = None
    longest_alone: Claim | None = None  # of those that let no others in
    for claim in _believed(claims):
        lasting = longest if claim.alone else longest_alone
        if lasting is not None and claim.since < lasting.until:
            end = min(claim.until, lasting.until)
            text = (
                f"two held {named([name])} from {instant(claim.since)} to {instant(end)}:"
                f" {_held(lasting)}, and {_held(claim)}"
            )
            yield Violation(Rule.EXCLUSION, claim.since, text, (lasting, claim))
        if longest is None or claim.until > longest.until:
            longest = claim
        if claim.alone and (longest_alone is None or claim.until > longest_alone.until):
            longest_alone = claim


def unique(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find fences that were given before; readers share one, and a writer that becomes a reader keeps its."""
    first: dict[int, Claim] = {}
    for claim in claims:
        if claim.fence is None:
            continue
        other = first.setdefault(claim.fence, claim)
        if other is not claim and (claim.alone or (other.alone and other.owner != claim.owner)):
            text = (
                f"fence {claim.fence} of {named([name])} was given twice:"
                f" to {who(other)} at {instant(other.since)}, and to {who(claim)} at {instant(claim.since)}"
            )
            yield Violation(Rule.UNIQUE, claim.since, text, (other, claim))


def order(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find claims that were asked for after a fence had been given that is not below theirs.

    A client that asks at the very moment of another's grant may have asked before it.
    """
    for other, claim in _not_above(claims, before="since", after="asked", touching=False, readers=True):
        text = (
            f"{who(claim)} asked for {named([name])} at {instant(claim.asked)}"
            f" and got fence {claim.fence} at {instant(claim.since)},"
            f" but {who(other)} had been given fence {other.fence} at {instant(other.since)}"
        )
        yield Violation(Rule.ORDER, claim.since, text, (other, claim))


def succession(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find claims that began after another one had ended whose fence is not below theirs."""
    believed = list(_believed(claims))
    for other, claim in _not_above(believed, before="until", after="since", touching=True, readers=False):
        text = (
            f"{named([name])} went from a greater fence to one that is not:"
            f" {_held(other)}, then {_held(claim)}"
        )
        yield Violation(Rule.SUCCESSION, claim.since, text, (other, claim))


def _not_above(
    claims: list[Claim],
    *,
    before: Literal["since", "until"],
    after: Literal["asked", "since"],
    touching: bool,
    readers: bool,
) -> Iterator[tuple[Claim, Claim]]:
    """Yield each claim with the one of the greatest fence of those before it, unless its own is greater.

    One is before another if its `before` is less than the other's `after`, or, `touching`, equal to it.
    A reader's need not be greater than another reader's, and not smaller only if `readers` are asked about.
    """
    fenced = [claim for claim in claims if claim.fence is not None]
    if all(one.fence < two.fence for one, two in pairwise(fenced)):
        return  # the usual case: they rise from grant to grant, and one before another was granted earlier
    earlier_at, later_at = attrgetter(before), attrgetter(after)
    earlier = sorted(fenced, key=earlier_at)
    times = list(map(earlier_at, earlier))
    times.append(float("inf"))
    passed = 0
    greatest: dict[bool, Claim] = {}  # of readers, and of those that let no others in
    for claim in sorted(fenced, key=later_at):
        now = later_at(claim)
        while times[passed] < now or (touching and times[passed] == now):
            other = earlier[passed]
            if other.alone not in greatest or other.fence > greatest[other.alone].fence:
                greatest[other.alone] = other
            passed += 1
        for other in sorted(greatest.values(), key=_fence_of, reverse=True):
            least = other.fence + (other.alone or claim.alone)
            if claim.fence < least and (readers or other.alone or claim.alone) and not _became(other, claim):
                yield other, claim
                break


def _fence_of(claim: Claim) -> int:
    return claim.fence or 0


def _became(writer: Claim, reader: Claim) -> bool:
    """Whether a writer has become that reader (R23)."""
    return writer.mode == "write" and reader.mode == "read" and writer.owner == reader.owner


def unchanged(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find writers that learned that none came since a read lease, though one had before they asked."""
    return _changed(Rule.UNCHANGED, name, claims, "asked")


def meanwhile(name: str, claims: list[Claim]) -> Iterator[Violation]:
    """Find those where one came while they waited."""
    return _changed(Rule.MEANWHILE, name, claims, "since")


def _changed(
    rule: Rule, name: str, claims: list[Claim], before: Literal["asked", "since"]
) -> Iterator[Violation]:
    for claim in claims:
        if claim.unchanged_since is None:
            continue
        for other in claims:
            above = other.alone and (other.fence or 0) > claim.unchanged_since
            if above and other.owner != claim.owner and other.since < getattr(claim, before):
                text = (
                    f"{who(claim)} learned at {instant(claim.since)} that {named([name])} had no writer"
                    f" since fence {claim.unchanged_since}, but {_held(other)}"
                )
                yield Violation(rule, claim.since, text, (other, claim))
                break


def _held(claim: Claim) -> str:
    span = f"from {instant(claim.since)} to {instant(claim.until)}"
    return f"{who(claim)} {kept(claim, 'it')} {span} {with_fence(claim.fence)}"


CHECKS: Final[dict[Rule, Callable[[str, list[Claim]], Iterator[Violation]]]] = {
    Rule.EXCLUSION: exclusion,
    Rule.UNIQUE: unique,
    Rule.ORDER: order,
    Rule.SUCCESSION: succession,
    Rule.UNCHANGED: unchanged,
    Rule.MEANWHILE: meanwhile,
}
"""The rules about claims, by what finds violations in those on a name, in the order of their grants."""
