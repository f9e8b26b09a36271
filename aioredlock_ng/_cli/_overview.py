"""The nodes and the locks as text, as `status` and `watch` show them, and `release` before it asks."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ._terminal import Line, cells, clipped, printable

if TYPE_CHECKING:
    from .. import LockInspection, NodeStatistics, PermitInspection, QueueInspection, ReaderInspection, Survey
    from .._dashboard.overview import Overview


_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))

_MAX_CELLS: Final = 40
"""Columns that a name or a label may take on a screen of limited size."""

_MAX_PADDING: Final = 60
"""Columns that a text is filled up to, so that what stands below each other begins below each other."""

_COLUMNS: Final = ("name", "kind", "holder", "since", "ttl left", "nodes")

_NARROWED: Final = (
    ("holder", 8), ("name", 12), ("since", 0), ("nodes", 0), ("kind", 0), ("holder", 0), ("name", 1)
)  # fmt: skip
"""What gives way where a screen is too narrow, in this order, and down to how many columns; 0: it goes.
Names stay to the last, and how long a lock stays is always there."""


def lock_lines(
    survey: Survey,
    queues: Mapping[str, QueueInspection] | None = None,
    *,
    limited: bool = False,
    width: int | None = None,
) -> list[Line]:
    """Return a heading, a table, and for each lock one line, and for each of its readers, and in its queue.

    With `limited` room neither readers nor waiters have lines of their own, and names are cut to some
    columns; to be no wider than `width`, ages take the place of moments, and columns are cut.
    """
    more = " or more" if survey.truncated else ""
    held = sum(lock.state == "held" for lock in survey.locks)
    head = Line(f"held locks: {held}{more}", "head")
    if not survey.locks:
        return [head]
    rows: list[tuple[str, ...]] = [_COLUMNS]
    styles = [""]
    for lock in survey.locks:
        queue = (queues or {}).get(lock.name)
        rows.append(_lock_row(lock, survey.at, queue if limited else None, limited=limited))
        styles.append("" if lock.state in ("held", "free") else "warning")
        if not limited:
            beside = _reader_rows(lock, survey.at)
            if queue is not None:
                beside += _queue_rows(queue, survey.at, len(lock.nodes))
            rows += beside
            styles += [""] * len(beside)
    return [head, *(table(rows, styles) if width is None else _fitted(rows, styles, width))]


def _lock_row(
    lock: LockInspection, at: float, queue: QueueInspection | None, *, limited: bool
) -> tuple[str, ...]:
    name, holder = printable(lock.name), label(lock.holder)
    since = moment(lock.since, at)
    if lock.shared or lock.permits:
        holder, since = described_holders(lock), "-"
        shared = lock.permits or lock.readers
        holder += f": {', '.join(label(each.holder) for each in shared)}" if limited else ""
    if limited:
        name, holder = clipped(name, _MAX_CELLS), clipped(holder, _MAX_CELLS)
    ttl = _left(lock.ttl) if lock.agreed else "-"
    state = "" if lock.state == "held" else f" {lock.state}"
    kind = (lock.kind or "-") + _waiting(queue)
    return name, kind, holder, since, ttl, f"{lock.held_by}/{len(lock.nodes)}{state}{_oddity(lock)}"


def _reader_rows(lock: LockInspection, at: float) -> list[tuple[str, ...]]:
    """Return a row for each reader or permit, without a name, and one that says that there are more."""
    size = len(lock.nodes)
    rows: list[tuple[str, ...]] = [
        ("", "", label(reader.holder), moment(reader.since, at), _left(reader.ttl), _share(reader, size))
        for reader in lock.readers
    ]
    rows += [
        (
            "",
            f"slot {permit.slot}",
            label(permit.holder),
            moment(permit.since, at),
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
            label(each.holder),
            moment(each.since, at),
            "-",
            f"{each.known_to}/{size}",
        )
        for each in queue.waiters
    ]
    return [*rows, ("", "", "… and more", "", "", "")] if queue.more_waiters else rows


def _waiting(queue: QueueInspection | None) -> str:
    """Say how many stand in line, if any do."""
    if queue is None or not queue.waiters:
        return ""
    return f" ({len(queue.waiters)}{'+' if queue.more_waiters else ''} wait)"


def _share(each: ReaderInspection | PermitInspection, size: int) -> str:
    return f"{each.held_by}/{size}{'' if each.held_by > size // 2 else ' partial'}"


def described_holders(lock: LockInspection) -> str:
    """Say how many readers a lock has, or how many of its permits are held."""
    if number := len({permit.slot for permit in lock.permits}):
        return f"{number} permit{'' if number == 1 else 's'}"
    number = len(lock.readers)
    return f"{number} reader{'' if number == 1 else 's'}{' or more' if lock.more_readers else ''}"


def label(holder: str | None) -> str:
    return "-" if holder is None else printable(holder)


def moment(since: float | None, at: float) -> str:
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


def _fitted(rows: Sequence[tuple[str, ...]], styles: Sequence[str], width: int) -> list[Line]:
    """Lay out the rows of locks on a screen with a given number of columns."""
    lines = table(rows, styles)
    if all(cells(line.text) <= width for line in lines):
        return lines
    since = _COLUMNS.index("since")
    heading, *others = rows
    rows = [heading, *((*row[:since], _age(row[since]), *row[since + 1 :]) for row in others)]
    widths = {name: max(map(cells, column)) for name, *column in zip(_COLUMNS, *rows, strict=True)}
    whole, excess = widths["name"], 0
    for name, least in _NARROWED:
        excess = sum(2 + each for each in widths.values() if each) - width
        if excess > 0:
            widths[name] = min(widths[name], max(least, widths[name] - excess)) if least else 0
    widths["name"] = min(whole, widths["name"] - min(0, excess))  # what a column that went has left
    shown = [(number, size) for number, size in enumerate(widths.values()) if size]
    return table([tuple(clipped(row[number], size) for number, size in shown) for row in rows], styles)


def _age(moment: str) -> str:
    """Return the span that stands behind a moment."""
    return moment[moment.find("(") + 1 :].removesuffix(")")


def table(rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> list[Line]:
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
    notes += [Line(printable(text), "error") for text in overview.disagreement]
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
    """Say which nodes could not report a queue, for example because a right is missing."""
    return [
        Line(f"node {printable(each.node)} does not report its queue: {printable(each.reason)}", "warning")
        for queue in queues
        for each in queue.silent
        if each.node not in silent
    ]
