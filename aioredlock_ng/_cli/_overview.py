"""The nodes and the held locks as text, as `status` and `watch` show them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Final

from ._lock_table import lock_lines, table
from ._terminal import Line, printable

if TYPE_CHECKING:
    from .. import NodeStatistics, QueueInspection
    from .._dashboard.overview import Overview

_HEADINGS: Final = 2
"""Lines above the locks."""


def as_lines(overview: Overview, room: int | None = None, width: int | None = None) -> list[Line]:
    """Return it as text: as much as fits into `room` lines of `width` columns, and how much that leaves out.

    A screen of limited size has one line for each lock; else each reader has one, too.
    """
    head, foot = _node_lines(overview), _notes(overview)
    locks: list[Line] = []
    if overview.survey is not None:
        locks = lock_lines(overview.survey, overview.queues, limited=room is not None, width=width)
    if overview.survey is not None and room is not None and len(head) + len(locks) + len(foot) > room:
        shown = max(0, room - len(head) - _HEADINGS - 1 - len(foot))
        foot.insert(0, Line(f"  … and {len(overview.survey.locks) - shown} more"))
        locks = locks[: _HEADINGS + shown]
    return [*head, *locks, *foot][:room]


def _node_lines(overview: Overview) -> list[Line]:
    silent = (
        {entry.node: entry.reason for entry in overview.survey.silent} if overview.survey is not None else {}
    )
    rows = []
    for node in overview.nodes:
        took = "" if node.round_trip is None else f"{node.round_trip * 1000:.1f} ms"
        reason = node.reason or silent.get(node.name, "")
        rows.append((printable(node.name), str(node.state), took, printable(reason) if reason else ""))
    styles = [_node_style(node, silent) for node in overview.nodes]
    head = f"nodes up: {overview.up} of {len(overview.nodes)}"
    if overview.margin >= 0:  # else a note says what follows from it
        head += f", {overview.margin or 'none'} may fail"
    return [Line(head, "head"), *table(rows, styles)]


def _node_style(node: NodeStatistics, silent: Container[str]) -> str:
    if node.state == "up":
        return "warning" if node.name in silent else "ok"
    return "warning" if node.votes_in is not None else "error"  # a quarantine ends by itself


def _notes(overview: Overview) -> list[Line]:
    notes = []
    survey = overview.survey
    if survey is None:
        notes.append(Line(printable(overview.problem), "error"))
    elif overview.answered < overview.quorum:
        text = f"{overview.answered} of {len(overview.nodes)} nodes answered, {overview.quorum} are needed"
        notes.append(Line(f"{text} for a complete list: there may be more locks", "error"))
    if overview.up < overview.quorum and overview.unavailable_for == 0:
        notes.append(
            Line("these nodes have not been used so far: the first lock can be acquired at once", "ok")
        )
    elif overview.unavailable_for > 0:
        text = f"{overview.up} of {len(overview.nodes)} nodes are up: no lock can be acquired"
        if math.isfinite(overview.unavailable_for):
            text += f" for another {overview.unavailable_for:.1f} s"
        belongs_elsewhere = any(
            node.belongs_elsewhere for node in overview.nodes
        )  # and an `init` would make it worse
        if any(node.state == "quarantined" for node in overview.nodes) and not belongs_elsewhere:
            text += "; `aioredlock-ng init` if no lock can be alive"
        notes.append(Line(text, "error"))
    if survey is not None:
        notes += _queue_notes(overview.queues.values(), {each.node for each in survey.silent})
    if survey is not None and survey.truncated:
        notes.append(Line("there may be more locks: the search stopped at its limit", "warning"))
    return notes


def _queue_notes(queues: Iterable[QueueInspection], silent: Container[str]) -> list[Line]:
    """Say which nodes did not tell of a line, but of all else: a right is missing, say."""
    return [
        Line(f"node {printable(each.node)} does not report its queue: {printable(each.reason)}", "warning")
        for queue in queues
        for each in queue.silent
        if each.node not in silent
    ]
