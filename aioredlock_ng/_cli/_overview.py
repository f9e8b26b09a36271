"""The nodes and the held locks, as `status` and `watch` show them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from ._lock_table import lock_lines, table
from ._terminal import Line, printable
from .common import unavailable_for

if TYPE_CHECKING:
    from .. import (
        LockManager,
        NodeStatistics,
        QueueInspection,
        Survey,
    )

_MAX_LINES: Final = 16
"""Fair locks, the first by their names, of which it is asked who waits: a round each, one after the other."""

_HEADINGS: Final = 2
"""Lines above the locks."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What was seen at one moment."""

    nodes: tuple[NodeStatistics, ...]
    survey: Survey | None
    """None when nothing could be looked at."""
    problem: str = ""
    """Why not."""
    unavailable_for: float = 0.0
    """Seconds until a majority could grant a lock; `math.inf` when no moment is known."""
    queues: Mapping[str, QueueInspection] = dataclasses.field(default_factory=dict)
    """The lines for the locks that were named, where they were looked at."""

    @property
    def answered(self) -> int:
        """How many nodes answered."""
        return len(self.nodes) - len(self.survey.silent) if self.survey else 0

    @property
    def up(self) -> int:
        """How many nodes take part in locking."""
        return sum(node.state == "up" for node in self.nodes)

    @property
    def quorum(self) -> int:
        """How many are needed."""
        return len(self.nodes) // 2 + 1

    @property
    def margin(self) -> int:
        """How many of those that are up can fail before nothing can be locked; below 0: how many lack."""
        return self.up - self.quorum


async def look(
    manager: LockManager,
    names: Sequence[str] = (),
    *,
    quarantine: float | None = None,
    queues: bool = False,
) -> Overview:
    """Look at the nodes, and at the locks `names`, or all; with `queues`, also at their lines.

    Of all locks it is the lines of the first fair ones.  See `unavailable_for` for `quarantine`.
    """
    from .. import ConfigurationError

    try:
        survey = await manager.survey(*names)
        fair = [lock.name for lock in survey.locks if lock.kind == "fair"][:_MAX_LINES]
        lines = {name: await manager.queue(name) for name in names or fair} if queues else {}
    except ConfigurationError as error:
        return Overview(
            nodes=manager.statistics().nodes, survey=None, problem=str(error), unavailable_for=math.inf
        )
    wait = unavailable_for(manager, quarantine)
    nodes = manager.statistics().nodes
    return Overview(nodes=nodes, survey=survey, unavailable_for=wait, queues=lines)


# -- for people --------------------------------------------------------------------------------------


def as_lines(overview: Overview, room: int | None = None, width: int | None = None) -> list[Line]:
    """Return it as text: as much as fits into `room` lines of `width` columns, and how much that leaves out.

    A screen of limited size has one line for each lock; else each reader has one, too.
    """
    head, foot = _node_lines(overview), _notes(overview)
    locks: list[Line] = []
    if overview.survey:
        locks = lock_lines(overview.survey, overview.queues, limited=room is not None, width=width)
    if overview.survey and room is not None and len(head) + len(locks) + len(foot) > room:
        shown = max(0, room - len(head) - _HEADINGS - 1 - len(foot))
        foot.insert(0, Line(f"  … and {len(overview.survey.locks) - shown} more"))
        locks = locks[: _HEADINGS + shown]
    return [*head, *locks, *foot][:room]


def _node_lines(overview: Overview) -> list[Line]:
    silent = {entry.node: entry.reason for entry in overview.survey.silent} if overview.survey else {}
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
        notes.append(Line(f"{text} to be sure: there may be other locks than these", "error"))
    if overview.up < overview.quorum and overview.unavailable_for == 0:
        notes.append(Line("these nodes have not been used yet: the first lock can be acquired at once", "ok"))
    elif overview.unavailable_for > 0:
        text = f"{overview.up} of {len(overview.nodes)} nodes are up: no lock can be acquired"
        if math.isfinite(overview.unavailable_for):
            text += f" for another {overview.unavailable_for:.1f} s"
        strayed = any(node.strayed for node in overview.nodes)  # and an `init` would make it worse
        if any(node.state == "quarantined" for node in overview.nodes) and not strayed:
            text += "; `aioredlock-ng init` if no lock can be alive"
        notes.append(Line(text, "error"))
    if survey is not None:
        notes += _queue_notes(overview.queues.values(), {each.node for each in survey.silent})
    if survey is not None and survey.truncated:
        notes.append(Line("there may be more locks: the search was ended at its limit", "warning"))
    return notes


def _queue_notes(queues: Iterable[QueueInspection], silent: Container[str]) -> list[Line]:
    """Say which nodes did not tell of a line, but of all else: a right is missing, say."""
    return [
        Line(f"{printable(each.node)} does not tell its line: {printable(each.reason)}", "warning")
        for queue in queues
        for each in queue.silent
        if each.node not in silent
    ]
