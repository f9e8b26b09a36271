"""The nodes and the held locks, as `status` and `watch` show them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from ._terminal import Line, cells, clipped, printable
from .common import unavailable_for

if TYPE_CHECKING:
    from .. import (
        LockInspection,
        LockManager,
        NodeStatistics,
        PermitInspection,
        QueueInspection,
        ReaderInspection,
        Survey,
    )

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))

_MAX_CELLS: Final = 40
"""Columns that a name or a label may take on a screen of limited size."""

_MAX_PADDING: Final = 60
"""Columns that a text is filled up to, so that what stands below each other begins below each other."""

_HEADINGS: Final = 2
"""Lines above the locks."""

_COLUMNS: Final = ("name", "kind", "holder", "since", "ttl left", "nodes")


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


async def look(
    manager: LockManager,
    names: Sequence[str] = (),
    *,
    quarantine: float | None = None,
    queues: bool = False,
) -> Overview:
    """Look at the nodes, and at the locks `names`, with their `queues`, or all.

    See `unavailable_for` for `quarantine`.
    """
    from .. import ConfigurationError

    try:
        survey = await manager.survey(*names)
        lines = {name: await manager.queue(name) for name in dict.fromkeys(names)} if queues else {}
    except ConfigurationError as error:
        return Overview(
            nodes=manager.statistics().nodes, survey=None, problem=str(error), unavailable_for=math.inf
        )
    wait = unavailable_for(manager, quarantine)
    nodes = manager.statistics().nodes
    return Overview(nodes=nodes, survey=survey, unavailable_for=wait, queues=lines)


# -- for people --------------------------------------------------------------------------------------


def as_lines(overview: Overview, room: int | None = None) -> list[Line]:
    """Return it as text: as much as fits into `room` lines, and how much that leaves out.

    A screen of limited size has one line for each lock; else each reader has one, too.
    """
    head, foot = _node_lines(overview), _notes(overview)
    locks: list[Line] = []
    if overview.survey:
        locks = lock_lines(overview.survey, overview.queues, limited=room is not None)
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
    return [Line(f"nodes up: {overview.up} of {len(overview.nodes)}", "head"), *_table(rows, styles)]


def _node_style(node: NodeStatistics, silent: Container[str]) -> str:
    if node.state == "up":
        return "warning" if node.name in silent else "ok"
    return "warning" if node.votes_in is not None else "error"  # a quarantine ends by itself


def lock_lines(
    survey: Survey, queues: Mapping[str, QueueInspection] | None = None, *, limited: bool = False
) -> list[Line]:
    """Return a heading, a table, and for each lock one line, and for each of its readers, and in its queue.

    With `limited` room readers have no line of their own, and names are cut to some columns.
    """
    more = " or more" if survey.truncated else ""
    held = sum(lock.state == "held" for lock in survey.locks)
    head = Line(f"held locks: {held}{more}", "head")
    if not survey.locks:
        return [head]
    rows: list[tuple[str, ...]] = [_COLUMNS]
    styles = [""]
    for lock in survey.locks:
        rows.append(_lock_row(lock, survey.at, limited=limited))
        styles.append("" if lock.state in ("held", "free") else "warning")
        if not limited:
            beside = _reader_rows(lock, survey.at)
            if queues and lock.name in queues:
                beside += _queue_rows(queues[lock.name], survey.at, len(lock.nodes))
            rows += beside
            styles += [""] * len(beside)
    return [head, *_table(rows, styles)]


def _lock_row(lock: LockInspection, at: float, *, limited: bool) -> tuple[str, ...]:
    name, holder = printable(lock.name), _label(lock.holder)
    since = _moment(lock.since, at)
    if lock.shared or lock.permits:
        holder, since = described_holders(lock), "-"
        shared = lock.permits or lock.readers
        holder += f": {', '.join(_label(each.holder) for each in shared)}" if limited else ""
    if limited:
        name, holder = clipped(name, _MAX_CELLS), clipped(holder, _MAX_CELLS)
    ttl = _left(lock.ttl) if lock.agreed else "-"
    state = "" if lock.state == "held" else f" {lock.state}"
    kind = lock.kind or "-"
    return name, kind, holder, since, ttl, f"{lock.held_by}/{len(lock.nodes)}{state}{_oddity(lock)}"


def _reader_rows(lock: LockInspection, at: float) -> list[tuple[str, ...]]:
    """Return a row for each reader or permit, without a name, and one that says that there are more."""
    size = len(lock.nodes)
    rows: list[tuple[str, ...]] = [
        ("", "", _label(reader.holder), _moment(reader.since, at), _left(reader.ttl), _share(reader, size))
        for reader in lock.readers
    ]
    rows += [
        (
            "",
            f"slot {permit.slot}",
            _label(permit.holder),
            _moment(permit.since, at),
            _left(permit.ttl),
            _share(permit, size),
        )
        for permit in lock.permits
    ]
    return [*rows, ("", "", "… and more", "", "", "")] if lock.more_readers else rows


def _queue_rows(queue: QueueInspection, at: float, size: int) -> list[tuple[str, ...]]:
    """Return a row for each that waits in line, and one that says that there are more."""
    rows: list[tuple[str, ...]] = [
        (
            "",
            f"place {each.place}",
            _label(each.holder),
            _moment(each.since, at),
            "-",
            f"{each.known_to}/{size}",
        )
        for each in queue.waiters
    ]
    return [*rows, ("", "", "… and more", "", "", "")] if queue.more_waiters else rows


def _share(each: ReaderInspection | PermitInspection, size: int) -> str:
    return f"{each.held_by}/{size}{'' if each.held_by > size // 2 else ' partial'}"


def described_holders(lock: LockInspection) -> str:
    """Say how many readers a lock has, or how many of its permits are held."""
    if number := len({permit.slot for permit in lock.permits}):
        return f"{number} permit{'' if number == 1 else 's'}"
    number = len(lock.readers)
    return f"{number} reader{'' if number == 1 else 's'}{' or more' if lock.more_readers else ''}"


def _label(holder: str | None) -> str:
    return "-" if holder is None else printable(holder)


def _moment(since: float | None, at: float) -> str:
    if since is None:
        return "-"
    moment = datetime.fromtimestamp(since, UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S} ({_span(max(0.0, at - since))})"


def _left(ttl: float | None) -> str:
    return "none" if ttl is None else f"{ttl:.1f} s"


def _oddity(lock: LockInspection) -> str:
    """Say what a node has under the name instead of a lock."""
    reasons = {node.reason.partition(" ")[0] for node in lock.nodes if node.wrong_type}
    return "".join(f" ({reason})" for reason in reasons)


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


def _table(rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> list[Line]:
    """Lay out rows in columns; one text that is far too long does not push the others out of sight."""
    widths = [min(_MAX_PADDING, max(map(cells, column))) for column in zip(*rows, strict=True)]
    lines = []
    for row, style in zip(rows, styles, strict=True):
        padded = [text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)]
        lines.append(Line(("  " + "  ".join(padded)).rstrip(), style))
    return lines


def _span(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"
