"""What a picture shows, however it is drawn: a stretch of time, lanes, and what happened in each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tests.simulation.checks_words import Violation
from tests.simulation.history import Claim, Happening, History, Operation, Outcome
from tests.simulation.history_words import instant, kept, named, plain, who, with_fence

AROUND: Final = 3.0
"""Seconds that are shown on either side of a violation and of its claims."""

FARTHEST: Final = 15.0
"""Seconds from a violation beyond which its claims are not followed."""

Span = tuple[float, float]


class Kind(Enum):
    """What an item is."""

    CLAIM = auto()
    ATTEMPT = auto()
    """An acquire that got no lease; the wait of one that did is part of its claim."""
    FAULT = auto()
    VIOLATION = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that is drawn in a lane."""

    kind: Kind
    begin: float
    end: float
    label: str
    told: str
    """All about it, in a sentence."""
    asked: float | None = None
    """A claim's, from when on it waited."""
    stopped: float | None = None
    """A claim's, until when its body went on."""
    wrong: bool = False
    """Whether it has part in a violation."""
    outcome: Outcome = Outcome.OK
    names: tuple[str, ...] = ()

    @property
    def first(self) -> float:
        """When it begins to be seen."""
        return self.begin if self.asked is None else self.asked

    @property
    def last(self) -> float:
        """When it is no longer seen."""
        return self.end if self.stopped is None else max(self.end, self.stopped)

    @property
    def needs_label(self) -> bool:
        """Whether its label is shown even where its bar is too short for it."""
        return self.wrong or self.kind in (Kind.FAULT, Kind.VIOLATION)


@dataclass(frozen=True, slots=True)
class Lane:
    """What happened to one client or node, or to all."""

    title: str
    items: list[Item]


def window(history: History, violations: Sequence[Violation], between: Span | None) -> Span:
    """Return the time that is shown: what was asked for, else around the first violation, else all."""
    begin, end = _whole(history)
    if between is not None:
        begin, end = between
    elif violations:
        first = min(violations, key=lambda violation: violation.at)
        seen = [first.at, *(claim.since for claim in first.claims), *(claim.asked for claim in first.claims)]
        begin = max(begin, min(seen) - AROUND, first.at - FARTHEST)
        end = min(max(end, first.at), first.at + AROUND)
    return (begin, end) if begin < end else (begin, begin + 1.0)


def _whole(history: History) -> Span:
    begins = [happening.at for happening in history.happenings]
    begins += [operation.began for operation in history.operations]
    begins += [claim.asked for claim in history.claims]
    return min(begins, default=0.0), max([history.ended, *(claim.stopped for claim in history.claims)])


def meets(span: Span, begin: float, end: float) -> bool:
    """Return whether something is seen within a span."""
    return begin <= span[1] and end >= span[0]


def lanes(history: History, violations: Sequence[Violation], span: Span) -> list[Lane]:
    """Return a lane for each client and node, one for what befell all, and one for the violations."""
    # The numbers of clients have gaps when some are left out to make a run smaller.
    clients: dict[int, list[Item]] = defaultdict(list, {number: [] for number in range(history.clients)})
    nodes: dict[int, list[Item]] = defaultdict(list, {number: [] for number in range(history.nodes)})
    shared: list[Item] = []
    for happening in faults(history, span):
        if happening.node is not None:
            nodes[happening.node].append(_fault(happening))
        else:
            (shared if happening.client is None else clients[happening.client]).append(_fault(happening))
    if history.healed_at is not None and meets(span, history.healed_at, history.healed_at):
        shared.append(_healed(history.healed_at))
    wrong = {id(claim) for violation in violations for claim in violation.claims}
    for claim in claims(history, span):
        clients[claim.client].append(_claim(claim, wrong=id(claim) in wrong))
    for operation in operations(history, span):
        if operation.kind in ("acquire", "try") and operation.outcome is not Outcome.OK:
            clients[operation.client].append(_attempt(operation, history.ended))
    drawn = [Lane(f"client {number}", items) for number, items in sorted(clients.items())]
    drawn += [Lane(f"node {number}", items) for number, items in sorted(nodes.items())]
    drawn += [Lane("all", shared)] if shared else []
    marks = [
        _violation(number, one) for number, one in enumerate(violations, 1) if meets(span, one.at, one.at)
    ]
    return [*drawn, Lane("violations", marks)]


def faults(history: History, span: Span) -> Iterator[Happening]:
    """Return the faults that are seen within a span."""
    return (
        one for one in history.happenings if meets(span, one.at, one.at if one.until is None else one.until)
    )


def claims(history: History, span: Span) -> Iterator[Claim]:
    """Return the claims that are seen within a span, from the wait before them to the end of their bodies."""
    return (one for one in history.claims if meets(span, one.asked, max(one.until, one.stopped)))


def operations(history: History, span: Span) -> Iterator[Operation]:
    """Return the operations that are seen within a span."""
    return (
        one
        for one in history.operations
        if meets(span, one.began, history.ended if one.ended is None else one.ended)
    )


def digits(fence: int | None) -> str:
    """Return the end of a fence, by which neighbours are told apart."""
    return "" if fence is None else f":{fence % 10_000:04}" if fence >= 10_000 else f":{fence}"


def _short(names: Iterable[str]) -> str:
    return "+".join(map(plain, names))


def told_claim(claim: Claim) -> str:
    """Return all about a claim."""
    late = f"; its body stopped at {instant(claim.stopped)}" if claim.stopped > claim.until else ""
    return (
        f"{who(claim)} {kept(claim, named(claim.names))} {with_fence(claim.fence)}"
        f" from {instant(claim.since)} to {instant(claim.until)}, asked at {instant(claim.asked)}{late}"
    )


def told_operation(operation: Operation) -> str:
    """Return all about an operation."""
    end = "did not end" if operation.ended is None else f"{operation.outcome} at {instant(operation.ended)}"
    note = f" ({plain(operation.note)})" if operation.note else ""
    return f"{who(operation)} {operation.kind} {named(operation.names)}: {end}{note}"


def told_fault(happening: Happening) -> str:
    """Return all about a fault."""
    places = [
        f"{word} {number}"
        for word, number in (("node", happening.node), ("client", happening.client))
        if number is not None
    ]
    end = "" if happening.until is None else f", until {instant(happening.until)}"
    return f"{' and '.join(places) or 'all'}: {plain(happening.what)}{end}"


def _claim(claim: Claim, *, wrong: bool) -> Item:
    return Item(
        kind=Kind.CLAIM,
        begin=claim.since,
        end=max(claim.since, claim.until),
        label=_short(claim.names) + digits(claim.fence),
        told=told_claim(claim),
        asked=claim.asked,
        stopped=claim.stopped if claim.stopped > claim.until else None,
        wrong=wrong,
        names=claim.names,
    )


def _attempt(operation: Operation, ended: float) -> Item:
    end = ended if operation.ended is None else operation.ended
    return Item(
        kind=Kind.ATTEMPT,
        begin=operation.began,
        end=max(operation.began, end),
        label=_short(operation.names),
        told=f"{told_operation(operation)}, begun at {instant(operation.began)}",
        outcome=operation.outcome,
        names=operation.names,
    )


def _fault(happening: Happening) -> Item:
    both = happening.node is not None and happening.client is not None
    return Item(
        kind=Kind.FAULT,
        begin=happening.at,
        end=happening.at if happening.until is None else happening.until,
        label=plain(happening.what) + (f" (client {happening.client})" if both else ""),
        told=f"{told_fault(happening)}, from {instant(happening.at)} on",
    )


def _healed(moment: float) -> Item:
    told = f"all faults are over at {instant(moment)}"
    return Item(kind=Kind.FAULT, begin=moment, end=moment, label="healed", told=told)


def _violation(number: int, violation: Violation) -> Item:
    return Item(
        kind=Kind.VIOLATION,
        begin=violation.at,
        end=violation.at,
        label=f"!{number}",
        told=f"!{number} {violation}",
        wrong=True,
    )
