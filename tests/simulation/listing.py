"""A history as text: what happened around a violation, line by line in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from tests.simulation.checks_words import Violation
from tests.simulation.history import Claim, Happening, History, Operation
from tests.simulation.history_words import instant, kept, named, plain, who, with_fence

AROUND: Final = 3.0
"""Seconds that are shown on either side of a violation and of its claims."""

FARTHEST: Final = 15.0
"""Seconds from a violation beyond which its claims are not followed."""

MOST: Final = 500
"""Lines; violations come on top."""

Span = tuple[float, float]


def listed(history: History, violations: Sequence[Violation], *, between: Span | None = None) -> str:
    """Return what is seen `between` two times; by default what is around the first violation, or all.

    What commands did at the nodes is not shown.
    """
    begin, end = between or _window(history, violations)
    lines = [(at, text) for at, until, text in _happened(history) if at <= end and until >= begin]
    focus = min((one.at for one in violations), default=(begin + end) / 2)
    lines = sorted(lines, key=lambda line: abs(line[0] - focus))[:MOST]
    lines += [
        (one.at, f"!{number} {one}") for number, one in enumerate(violations, 1) if begin <= one.at <= end
    ]
    title = f"{len(violations) or 'no'} violation{'' if len(violations) == 1 else 's'}"
    title += f"; {history.clients} clients, {history.nodes} nodes, {len(history.claims)} claims"
    title += f", {instant(history.ended)}; shown: {instant(begin)} to {instant(end)}\n"
    return title + "".join(f"{at:12.6f}  {text}\n" for at, text in sorted(lines, key=itemgetter(0)))


def _window(history: History, violations: Sequence[Violation]) -> Span:
    begin = min((at for at, _, _ in _happened(history)), default=0.0)
    end = max([history.ended, *(claim.stopped for claim in history.claims)])
    if violations:
        first = min(violations, key=lambda one: one.at)
        seen = [first.at, *(min(claim.since, claim.asked) for claim in first.claims)]
        begin = max(begin, min(seen) - AROUND, first.at - FARTHEST)
        end = min(max(end, first.at), first.at + AROUND)
    return begin, end


def _happened(history: History) -> Iterator[tuple[float, float, str]]:
    """Yield when each thing began, when it was over, and all about it."""
    for fault in history.happenings:
        yield fault.at, fault.at if fault.until is None else fault.until, f"fault: {_told_fault(fault)}"
    for operation in history.operations:
        ended = history.ended if operation.ended is None else operation.ended
        yield operation.began, ended, _told_operation(operation)
    for claim in history.claims:
        yield claim.since, max(claim.until, claim.stopped), _told_claim(claim)
    for write in history.writes:
        result = "accepted" if write.accepted else "refused"
        yield (
            write.at,
            write.at,
            f"client {write.client} wrote {named([write.name])} with fence {write.fence}: {result}",
        )
    for update in history.updates:
        counter = f"the counter {named([update.name])} from {update.read} to {update.wrote}"
        yield update.at, update.at, f"client {update.client} raised {counter}"
    if history.healed_at is not None:
        yield history.healed_at, history.healed_at, "all faults are over"


def _told_claim(claim: Claim) -> str:
    late = f"; its body stopped at {instant(claim.stopped)}" if claim.stopped > claim.until else ""
    return (
        f"{who(claim)} {kept(claim, named(claim.names))} {with_fence(claim.fence)}"
        f" from {instant(claim.since)} to {instant(claim.until)}, asked at {instant(claim.asked)}{late}"
    )


def _told_operation(operation: Operation) -> str:
    end = "did not end" if operation.ended is None else f"{operation.outcome} at {instant(operation.ended)}"
    note = f" ({plain(operation.note)})" if operation.note else ""
    return f"{who(operation)} {operation.kind} {named(operation.names)}: {end}{note}"


def _told_fault(fault: Happening) -> str:
    places = [
        f"{word} {number}"
        for word, number in (("node", fault.node), ("client", fault.client))
        if number is not None
    ]
    end = "" if fault.until is None else f", until {instant(fault.until)}"
    return f"{' and '.join(places) or 'all'}: {plain(fault.what)}{end}"
