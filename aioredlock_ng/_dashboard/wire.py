"""What the page is told: what was seen, as JSON values, and what has changed between two looks.

Names and labels go as they are: whatever bytes a key has (those that are not UTF-8 as lone surrogates,
PEP 383), JSON escapes them, and the page shows them as text.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from .._seen.as_json import queue_as_json
from .._seen.overview import availability

if TYPE_CHECKING:
    from .. import (
        LockInspection,
        ManagerStatistics,
        NodeInspection,
        PermitInspection,
        QueueInspection,
        ReaderInspection,
    )
    from .._seen.events import Event
    from .._seen.overview import Overview

VERSION: Final = 1
"""Of what is sent: a page that was loaded from an older server loads itself anew."""

SLACK: Final = 0.25
"""Seconds by which a lock's end must move to be told anew: five nodes never give it to the millisecond."""

Row: TypeAlias = dict[str, Any]
"""One lock as a line of the table."""

_COUNTERS: Final = ("held", "waiting", "acquired", "refused", "gave_up", "extended", "lost")


def dumped(value: object) -> str:
    """Return it as JSON in ASCII, on one line: an event of a stream ends at an empty one."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# -- the table ---------------------------------------------------------------------------------------


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """By whom a lock was held when that was last known, and until when."""

    by: frozenset[object] = frozenset()
    """What tells one holder from the next; of readers and permits, all of them."""
    until: float | None = None


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one look."""

    at: float
    """When it was seen, in Unix seconds by the manager's clock."""
    rows: Mapping[str, Row]
    held: Mapping[str, Held]


NOTHING_YET: Final = Table(at=0.0, rows={}, held={})


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs between two tables."""

    changed: Mapping[str, Row]
    """The rows to send."""
    gone: Sequence[str]
    happened: Mapping[str, int]
    """How many locks, readers or permits were granted, released and so on in between."""


def table(overview: Overview, before: Table) -> Table:
    """Make the rows of what was seen; ends that have hardly moved stay as they were told."""
    survey = overview.survey
    assert survey is not None, "a problem is told elsewhere"
    rows: dict[str, Row] = {}
    held: dict[str, Held] = {}
    for lock in survey.locks:
        rows[lock.name] = row = _row(lock, survey.at, overview.queues.get(lock.name))
        old = before.rows.get(lock.name)
        if old is not None and not moved(old["until"], row["until"]):
            row["until"] = old["until"]
        if lock.state == "held":
            held[lock.name] = Held(by=_holders(lock), until=row["until"])
        elif lock.state == "unknown" and lock.name in before.held:
            held[lock.name] = before.held[lock.name]
    if overview.answered < overview.quorum:  # what a minority does not have is not gone
        held = {**before.held, **held}
    return Table(at=survey.at, rows=rows, held=held)


def change(before: Table, now: Table) -> Change:
    """Say what has changed, and what that means."""
    happened = Counter[str]()
    for name in before.held.keys() | now.held.keys():
        old, new = before.held.get(name, _FREE), now.held.get(name, _FREE)
        if old is not new:
            happened += _happened(old, new, now.at)
    return Change(
        changed={name: row for name, row in now.rows.items() if before.rows.get(name) != row},
        gone=[name for name in before.rows if name not in now.rows],
        happened=happened,
    )


_FREE: Final = Held()


def _happened(old: Held, new: Held, at: float) -> Counter[str]:
    ended, came = len(old.by - new.by), len(new.by - old.by)
    if not ended and not came:
        return Counter(extended=int((new.until or 0.0) > (old.until or 0.0)))
    if ended and old.until is not None and at >= old.until - SLACK:
        return Counter(expired=ended, granted=came)  # nothing released it: its holder lost it, or is dead
    handed = min(ended, came) if len(old.by) == len(new.by) == 1 else 0
    return Counter(handed_over=handed, released=ended - handed, granted=came - handed)


def moved(old: float | None, new: float | None) -> bool:
    """Whether an end is another one."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > SLACK


def _row(lock: LockInspection, at: float, queue: QueueInspection | None) -> Row:
    return {
        **_common(lock, at, queue),
        "readers": len(lock.readers),
        "permits": len({permit.slot for permit in lock.permits}),
    }


def _common(lock: LockInspection, at: float, queue: QueueInspection | None) -> Row:
    return {
        "state": lock.state,
        "kind": lock.kind,
        "holder": lock.holder,
        "since": lock.since,
        "until": _until(lock.ttl, at),
        "held_by": lock.held_by,
        "nodes": len(lock.nodes),
        "fence": lock.highest_fence,
        "more": lock.more_readers,
        "waiting": None if queue is None else len(queue.waiters),
        "more_waiting": queue is not None and queue.more_waiters,
    }


def _holders(lock: LockInspection) -> frozenset[object]:
    shared: Sequence[ReaderInspection | PermitInspection] = lock.readers or lock.permits
    if shared:
        return frozenset((each.holder, each.since, getattr(each, "slot", None)) for each in shared)
    return frozenset([(lock.holder, lock.since, lock.kind)])


def _until(ttl: float | None, at: float) -> float | None:
    return None if ttl is None else round(at + ttl, 3)


# -- above it ----------------------------------------------------------------------------------------


def head(
    overview: Overview,
    counted: ManagerStatistics | None,
    *,
    interval: float,
    shown: Table,
    happened: Mapping[str, int],
) -> dict[str, Any]:
    """Say how the nodes are, and what the locks come to; `counted`: of a manager that takes locks itself."""
    survey = overview.survey
    assert survey is not None, "a problem is told elsewhere"
    return {
        "version": VERSION,
        "at": survey.at,
        "interval": interval,
        **availability(overview.unavailable_for),
        "quorum": overview.quorum,
        "up": overview.up,
        "answered": overview.answered,
        "margin": overview.margin,
        "nodes": [
            {
                "node": node.name,
                "state": str(node.state),
                "reason": node.reason,
                "votes_in": node.votes_in,
                "round_trip": node.round_trip,
                "clock": node.clock,
            }
            for node in overview.nodes
        ],
        "silent": [dataclasses.asdict(silent) for silent in survey.silent],
        "truncated": survey.truncated,
        "total": len(shown.rows),
        "waiting": sum(len(queue.waiters) for queue in overview.queues.values()),
        "since_last": {
            what: happened.get(what, 0)
            for what in ("granted", "released", "handed_over", "extended", "expired")
        },
        "manager": None if counted is None else {name: getattr(counted, name) for name in _COUNTERS},
    }  # fmt: skip


# -- one lock ----------------------------------------------------------------------------------------


def in_full(lock: LockInspection, at: float, queue: QueueInspection | None) -> dict[str, Any]:
    """Return all that is known of one lock."""
    return {
        **_common(lock, at, queue),
        "readers": [{**_reader(each, at), "held_by": each.held_by} for each in lock.readers],
        "permits": [{**_permit(each, at), "held_by": each.held_by} for each in lock.permits],
        "by_node": [_on_node(node, at) for node in lock.nodes],
        "queue": None
        if queue is None or not (queue.waiters or lock.kind == "fair")
        else queue_as_json(queue),
    }


def _on_node(node: NodeInspection, at: float) -> dict[str, Any]:
    return {
        "node": node.node,
        "held": node.held,
        "kind": node.kind,
        "holder": node.holder,
        "since": node.since,
        "until": _until(node.ttl, at),
        "fence": node.fence_counter,
        "reason": node.reason,
        "readers": [_reader(each, at) for each in node.readers],
        "more_readers": node.more_readers,
        "permits": [_permit(each, at) for each in node.permits],
    }


def _reader(reader: ReaderInspection, at: float) -> dict[str, Any]:
    return {"holder": reader.holder, "since": reader.since, "until": _until(reader.ttl, at)}


def _permit(permit: PermitInspection, at: float) -> dict[str, Any]:
    return {
        "slot": permit.slot,
        "holder": permit.holder,
        "since": permit.since,
        "until": _until(permit.ttl, at),
    }


def told(event: Event, at: float) -> dict[str, Any]:
    """Return what has happened to a lock."""
    return {"at": at, **dataclasses.asdict(event)}
