"""A history as text: what happened around a violation, line by line in order of time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from tests.simulation.checks_words import Violation
from tests.simulation.history import Claim, History, Operation
from tests.simulation.history_words import instant, kept, named, plain, who, with_fence

AROUND: Final = 3.0
"""Seconds that are shown on either side of a violation."""

Span = tuple[float, float]


def listed(history: History, violations: Sequence[Violation], *, between: Span | None = None) -> str:
    """Return what is seen `between` two times; by default what is around the first violation, or all.

    What commands did at the nodes is not shown.
    """
    if between is None and violations:
        first = min(violations, key=lambda one: one.at)
        since = min([first.at, *(claim.asked for claim in first.claims)])
        between = since - AROUND, first.at + AROUND
    begin, end = between or (0.0, math.inf)
    lines = [(at, text) for at, until, text in _happened(history) if at <= end and until >= begin]
    lines += [(one.at, f"! {one}") for one in violations if begin <= one.at <= end]
    title = f"{len(violations)} violations; {history.clients} clients, {history.nodes} nodes\n"
    return title + "".join(f"{at:12.6f}  {text}\n" for at, text in sorted(lines, key=itemgetter(0)))


def _happened(history: History) -> Iterator[tuple[float, float, str]]:
    """Yield when each thing began, when it was over, and all about it."""
    for fault in history.happenings:
        where = "".join(
            f"{word} {number}: "
            for word, number in (("node", fault.node), ("client", fault.client))
            if number is not None
        )
        until = fault.at if fault.until is None else fault.until
        yield fault.at, until, f"fault: {where}{plain(fault.what)}, until {instant(until)}"
    for operation in history.operations:
        ended = history.ended if operation.ended is None else operation.ended
        yield operation.began, ended, _operation(operation)
    for claim in history.claims:
        yield claim.since, max(claim.until, claim.stopped), _claim(claim)
    for write in history.writes:
        result = "accepted" if write.accepted else "refused"
        text = f"client {write.client} wrote {named([write.name])} with fence {write.fence}: {result}"
        yield write.at, write.at, text
    for update in history.updates:
        counter = f"the counter {named([update.name])} from {update.read} to {update.wrote}"
        yield update.at, update.at, f"client {update.client} raised {counter}"
    if history.healed_at is not None:
        yield history.healed_at, history.healed_at, "all faults are over"


def _claim(claim: Claim) -> str:
    late = f"; its body stopped at {instant(claim.stopped)}" if claim.stopped > claim.until else ""
    return (
        f"{who(claim)} {kept(claim, named(claim.names))} {with_fence(claim.fence)}"
        f" from {instant(claim.since)} to {instant(claim.until)}, asked at {instant(claim.asked)}{late}"
    )


def _operation(operation: Operation) -> str:
    end = "did not end" if operation.ended is None else f"{operation.outcome} at {instant(operation.ended)}"
    note = f" ({plain(operation.note)})" if operation.note else ""
    return f"{who(operation)} {operation.kind} {named(operation.names)}: {end}{note}"
