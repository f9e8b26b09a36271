"""The nodes and the locks as text, as `status` and `watch` show them, and `release` before it asks."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ._terminal import Line, printable

if TYPE_CHECKING:
    from .. import LockInspection, NodeStatistics, PermitInspection, QueueInspection, ReaderInspection, Survey
    from .._view.overview import Overview


_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))

_HEADINGS: Final = 2


def lock_lines(
    survey: Survey, queues: Mapping[str, QueueInspection] | None = None, *, limited: bool = False
) -> list[Line]:
    """Return a heading, a table, and for each lock one line, and for each of its readers, and in its queue.

    With `limited` room neither readers nor waiters have lines of their own, and moments are ages.
    """
    more = " or more" if survey.truncated else ""
    held = sum(lock.state == "held" for lock in survey.locks)
    lines = [Line(f"held locks: {held}{more}", "head")]
    if survey.locks:
        lines.append(_row("name", "kind", "holder", "since", "ttl left", "nodes"))
    for lock in survey.locks:
        queue = (queues or {}).get(lock.name)
        lines.append(_lock_row(lock, survey.at, queue, limited=limited))
        if not limited:
            lines += _shared_rows(lock, survey.at)
            lines += () if queue is None else _queue_rows(queue, survey.at, len(lock.nodes))
    return lines


def _row(*cells: str, style: str = "") -> Line:
    return Line("\t".join(cells), style)


def _lock_row(lock: LockInspection, at: float, queue: QueueInspection | None, *, limited: bool) -> Line:
    holder, since = label(lock.holder), moment(lock.since, at, short=limited)
    if lock.shared or lock.permits:
        holder, since = described_holders(lock), "-"
        shared = lock.permits or lock.readers
        holder += f": {', '.join(label(each.holder) for each in shared)}" if limited else ""
    waiting = ""
    if limited and queue is not None and (number := len(queue.waiters) + len(queue.writers)):
        waiting = f" ({number}{'+' if queue.more_waiters else ''} wait)"
    ttl = _left(lock.ttl) if lock.agreed else "-"
    state = "" if lock.state == "held" else f" {lock.state}"
    # What a node has under the name instead of a lock.
    oddities = {node.reason.partition(" ")[0] for node in lock.nodes if node.wrong_type}
    votes = f"{lock.held_by}/{len(lock.nodes)}{state}{''.join(f' ({each})' for each in oddities)}"
    style = "" if lock.state in ("held", "free") else "warning"
    return _row(printable(lock.name), (lock.kind or "-") + waiting, holder, since, ttl, votes, style=style)


_MORE: Final = _row("", "", "… and more", "", "", "")


def _shared_rows(lock: LockInspection, at: float) -> Iterator[Line]:
    """Yield a row for each reader or permit, without a name, and one that says that there are more."""
    size = len(lock.nodes)

    def row(slot: str, each: ReaderInspection | PermitInspection) -> Line:
        votes = f"{each.held_by}/{size}{'' if each.held_by > size // 2 else ' partial'}"
        return _row("", slot, label(each.holder), moment(each.since, at), _left(each.ttl), votes)

    yield from (row("", reader) for reader in lock.readers)
    yield from (row(f"slot {permit.slot}", permit) for permit in lock.permits)
    if lock.more_readers:
        yield _MORE


def _queue_rows(queue: QueueInspection, at: float, size: int) -> Iterator[Line]:
    """Yield a row for each that waits, in line or to write, and one that says that there are more."""
    for each in queue.waiters:
        since = moment(each.since, at)
        yield _row("", f"place {each.place}", label(each.holder), since, "-", f"{each.known_to}/{size}")
    if queue.more_waiters:
        yield _MORE
    yield from (_row("", "waits", label(writer), "-", "-", "") for writer in queue.writers)


def described_holders(lock: LockInspection) -> str:
    """Say how many readers a lock has, or how many of its permits are held."""
    if number := len({permit.slot for permit in lock.permits}):
        return f"{number} permit{'' if number == 1 else 's'}"
    number = len(lock.readers)
    return f"{number} reader{'' if number == 1 else 's'}{' or more' if lock.more_readers else ''}"


def label(holder: str | None) -> str:
    return "-" if holder is None else printable(holder)


def moment(since: float | None, at: float, *, short: bool = False) -> str:
    if since is None:
        return "-"
    age = max(0.0, at - since)
    span = next((f"{age / unit:.1f} {name}" for unit, name in _UNITS if age >= unit), f"{age:.0f} s")
    return span if short else f"{datetime.fromtimestamp(since, UTC).astimezone():%Y-%m-%d %H:%M:%S} ({span})"


def _left(ttl: float | None) -> str:
    return "none" if ttl is None else f"{ttl:.1f} s"


def as_lines(overview: Overview, room: int | None = None) -> list[Line]:
    """Return it as text: as much as fits into `room` lines, and how much that leaves out.

    A screen of limited size has one line for each lock; else each reader has one, too.
    """
    head, foot = _node_lines(overview), _notes(overview)
    locks: list[Line] = []
    if overview.survey is not None:
        locks = lock_lines(overview.survey, overview.queues, limited=room is not None)
    if overview.survey is not None and room is not None and len(head) + len(locks) + len(foot) > room:
        shown = max(0, room - len(head) - _HEADINGS - 1 - len(foot))
        foot.insert(0, Line(f"… and {len(overview.survey.locks) - shown} more"))
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
        cells = (printable(node.name), str(node.state), took, printable(reason) if reason else "")
        rows.append(_row(*cells, style=_node_style(node, silent)))
    head = f"nodes up: {overview.up} of {len(overview.nodes)}"
    if overview.margin >= 0:  # else a note says what follows from it
        head += f", {overview.margin or 'none'} may fail"
    return [Line(head, "head"), *rows]


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
