"""A history as text: lanes of characters, and below them what happened, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.simulation.checks_words import Violation
from tests.simulation.history import History, Outcome, Update, Write
from tests.simulation.history_words import instant, named
from tests.simulation.picture_lanes import (
    Kind,
    Span,
    claims,
    faults,
    lanes,
    meets,
    operations,
    told_claim,
    told_fault,
    told_operation,
    window,
)
from tests.simulation.picture_layout import Axis, Packed, Placed, pack

GUTTER: Final = 11
"""Columns for the names of the lanes."""

LISTED: Final = 1000
"""Lines below the lanes; violations come on top."""

LEGEND: Final = (
    "....[name:fence====]!!!!  waits, holds, overruns   #name:fence####  its claim breaks a rule\n"
    "....x fails   ....? unknown   ~~~~ fault   ^ instant; a fence is shown by its last digits"
)

_ENDS: Final = {Outcome.FAIL: "x", Outcome.UNKNOWN: "?"}


def as_text(
    history: History, violations: Sequence[Violation], *, width: int = 100, between: Span | None = None
) -> str:
    """Return a picture of a history, `width` columns wide, and a list of what happened, as long as it needs.

    It shows what was `between` two times; by default what is around the first violation, if there is one.
    What commands did at the nodes is not shown.
    """
    span = window(history, violations, between)
    axis = Axis(*span, width - GUTTER)
    lines = [_title(history, violations, span), ""]
    lines += _scale(axis)
    for lane in lanes(history, violations, span):
        lines += _lane(pack(lane, axis), axis)
    lines += _scale(axis)[::-1]
    lines += [LEGEND, ""]
    lines += _listing(history, violations, span)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(history: History, violations: Sequence[Violation], span: Span) -> str:
    count = f"{len(violations) or 'no'} violation{'' if len(violations) == 1 else 's'}"
    return (
        f"{count}; {history.clients} clients, {history.nodes} nodes, {len(history.claims)} claims,"
        f" {instant(history.ended)}; shown: {instant(span[0])} to {instant(span[1])}"
    )


def _scale(axis: Axis) -> list[str]:
    numbers, marks = [" "] * (axis.width + GUTTER), ["-"] * axis.width
    for place, text in axis.ticks(12):
        marks[min(place, axis.width - 1)] = "+"
        at = GUTTER + min(place, axis.width - len(text))
        numbers[at : at + len(text)] = text
    return ["seconds".ljust(GUTTER) + "".join(numbers[GUTTER:]), " " * GUTTER + "".join(marks)]


def _lane(lane: Packed, axis: Axis) -> Iterator[str]:
    rows = [[" "] * axis.width for _ in range(lane.rows)]
    for placed in lane.placed:
        _draw(rows[placed.row], placed, axis)
    for number, row in enumerate(rows):
        yield ("" if number else lane.title).ljust(GUTTER) + "".join(row)
    if lane.left_out:
        yield " " * GUTTER + f"({lane.left_out} more have no room here)"


def _draw(row: list[str], placed: Placed, axis: Axis) -> None:
    item = placed.item
    begin, end = placed.begin, placed.end
    row[placed.first : begin] = "." * (begin - placed.first)
    row[end : placed.last] = "!" * (placed.last - end)
    if begin == end:
        bar = ""
    elif item.kind is Kind.CLAIM:
        fill = "#" if item.wrong else "="
        left = fill if item.wrong or item.begin < axis.begin else "["
        right = fill if item.wrong or item.end > axis.end else "]"
        bar = fill if end - begin == 1 else left + fill * (end - begin - 2) + right
    elif item.kind is Kind.ATTEMPT:
        bar = "." * (end - begin - 1) + ("." if item.end > axis.end else _ENDS[item.outcome])
    elif item.begin == item.end:
        bar = "^"
    else:
        bar = "~" * (end - begin)
    row[begin:end] = bar
    row[placed.label_at : placed.label_at + len(placed.label)] = placed.label


def _listing(history: History, violations: Sequence[Violation], span: Span) -> list[str]:
    lines = list(_happened(history, span))
    focus = min((violation.at for violation in violations), default=sum(span) / 2)
    if len(lines) > LISTED:
        lines = sorted(lines, key=lambda line: abs(line[0] - focus))[:LISTED]
    marks = [
        (violation.at, f"!{number} {violation}")
        for number, violation in enumerate(violations, 1)
        if meets(span, violation.at, violation.at)
    ]
    return [f"{moment:12.6f}  {text}" for moment, text in sorted([*lines, *marks], key=lambda line: line[0])]


def _happened(history: History, span: Span) -> Iterator[tuple[float, str]]:
    for happening in faults(history, span):
        yield happening.at, f"fault: {told_fault(happening)}"
    for operation in operations(history, span):
        yield operation.began, told_operation(operation)
    for claim in claims(history, span):
        yield claim.since, told_claim(claim)
    for write in history.writes:
        if meets(span, write.at, write.at):
            yield write.at, _told_write(write)
    for update in history.updates:
        if meets(span, update.at, update.at):
            yield update.at, _told_update(update)
    if history.healed_at is not None and meets(span, history.healed_at, history.healed_at):
        yield history.healed_at, "all faults are over"


def _told_write(write: Write) -> str:
    result = "accepted" if write.accepted else "refused"
    return f"client {write.client} wrote {named([write.name])} with fence {write.fence}: {result}"


def _told_update(update: Update) -> str:
    name = named([update.name])
    return f"client {update.client} raised the counter {name} from {update.read} to {update.wrote}"
