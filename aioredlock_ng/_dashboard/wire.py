"""What was seen, as JSON values: for programs, and for the page.

Names and labels go as they are: whatever bytes a key has (those that are not UTF-8 as lone surrogates,
PEP 383), JSON escapes them, and the page shows them as text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .overview import availability

if TYPE_CHECKING:
    from .. import (
        LockInspection,
        ManagerStatistics,
        NodeInspection,
        NodeStatistics,
        PermitInspection,
        QueueInspection,
        ReaderInspection,
    )
    from .changes import Event
    from .overview import Overview


def as_json(overview: Overview) -> dict[str, Any]:
    """Return what ``status --json`` prints."""
    survey = overview.survey
    assert survey is not None, "a problem is shown elsewhere"
    return {
        "at": survey.at,
        **availability(overview.unavailable_for),
        "quorum": overview.quorum,
        "margin": overview.margin,
        "answered": overview.answered,
        "nodes": [_node(node) for node in overview.nodes],
        "strangers": overview.strangers,
        "locks": [
            {**lock_as_json(lock), "queue": queue_as_json(overview.queues.get(lock.name))}
            for lock in survey.locks
        ],
        "truncated": survey.truncated,
        "silent": [dataclasses.asdict(silent) for silent in survey.silent],
    }


def _node(node: NodeStatistics) -> dict[str, Any]:
    return {
        "node": node.name,
        "state": str(node.state),
        "reason": node.reason,
        "votes_in": node.votes_in,
        "round_trip": node.round_trip,
    }


def lock_as_json(lock: LockInspection) -> dict[str, Any]:
    """Return one lock as ``--json`` shows it."""
    return {
        "name": lock.name,
        "state": lock.state,
        "kind": lock.kind,
        "holder": lock.holder,
        "since": lock.since,
        "ttl": lock.ttl,
        "held_by": lock.held_by,
        "shared": lock.shared,
        "highest_fence": lock.highest_fence,
        "readers": [{**_reader_as_json(reader), "held_by": reader.held_by} for reader in lock.readers],
        "more_readers": lock.more_readers,
        "permits": [{**_permit_as_json(permit), "held_by": permit.held_by} for permit in lock.permits],
        "nodes": [
            {
                "node": node.node,
                "held": node.held,
                "kind": node.kind,
                "holder": node.holder,
                "since": node.since,
                "ttl": node.ttl,
                "reason": node.reason,
                "readers": [_reader_as_json(reader) for reader in node.readers],
                "more_readers": node.more_readers,
                "permits": [_permit_as_json(permit) for permit in node.permits],
                "fence_counter": node.fence_counter,
            }
            for node in lock.nodes
        ],
    }


def _reader_as_json(reader: ReaderInspection) -> dict[str, Any]:
    return {"holder": reader.holder, "since": reader.since, "ttl": reader.ttl}


def _permit_as_json(permit: PermitInspection) -> dict[str, Any]:
    return {"slot": permit.slot, "holder": permit.holder, "since": permit.since, "ttl": permit.ttl}


def queue_as_json(queue: QueueInspection | None) -> dict[str, Any] | None:
    """Return what ``status --json`` has of a line; None when it was not looked at."""
    if queue is None:
        return None
    return {
        "waiters": [
            {"place": each.place, "holder": each.holder, "since": each.since, "known_to": each.known_to}
            for each in queue.waiters
        ],
        "more_waiters": queue.more_waiters,
        "silent": [dataclasses.asdict(silent) for silent in queue.silent],
    }


VERSION: Final = 1
"""Of what is sent: a page that was loaded from an older server loads itself anew."""

Row: TypeAlias = dict[str, Any]
"""One lock as a line of the table."""

_COUNTERS: Final = ("held", "waiting", "acquired", "refused", "gave_up", "extended", "lost")


def dumped(value: object) -> str:
    """Return it as JSON in ASCII, on one line: an event of a stream ends at an empty one."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def event(name: str, data: object) -> str:
    """Return one server-sent event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return f"event: {name}\ndata: {dumped(data)}\n\n"


def row(lock: LockInspection, at: float, queue: QueueInspection | None) -> Row:
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
        "until": until_of(lock.ttl, at),
        "held_by": lock.held_by,
        "nodes": len(lock.nodes),
        "fence": lock.highest_fence,
        "more": lock.more_readers,
        "waiting": None if (line := line_of(lock, queue)) is None else len(line.waiters),
        "more_waiting": line is not None and line.more_waiters,
    }


def line_of(lock: LockInspection, queue: QueueInspection | None) -> QueueInspection | None:
    """Return the queue of a lock that has one: a fair one, or one that was fair to its waiters."""
    return queue if queue is not None and (queue.waiters or lock.kind == "fair") else None


def until_of(ttl: float | None, at: float) -> float | None:
    return None if ttl is None else round(at + ttl, 3)


# -- above it ----------------------------------------------------------------------------------------


def head(
    overview: Overview,
    counted: ManagerStatistics | None,
    *,
    interval: float,
    total: int,
    truncated: bool,
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
        "nodes": [{**_node(node), "clock": node.clock} for node in overview.nodes],
        "disagreement": overview.disagreement,
        "silent": [dataclasses.asdict(silent) for silent in survey.silent],
        "truncated": truncated,
        "total": total,
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
        "queue": None if (line := line_of(lock, queue)) is None else queue_as_json(line),
    }


def _on_node(node: NodeInspection, at: float) -> dict[str, Any]:
    return {
        "node": node.node,
        "held": node.held,
        "kind": node.kind,
        "holder": node.holder,
        "since": node.since,
        "until": until_of(node.ttl, at),
        "fence": node.fence_counter,
        "reason": node.reason,
        "readers": [_reader(each, at) for each in node.readers],
        "more_readers": node.more_readers,
        "permits": [_permit(each, at) for each in node.permits],
    }


def _reader(reader: ReaderInspection, at: float) -> dict[str, Any]:
    return {"holder": reader.holder, "since": reader.since, "until": until_of(reader.ttl, at)}


def _permit(permit: PermitInspection, at: float) -> dict[str, Any]:
    return {
        "slot": permit.slot,
        "holder": permit.holder,
        "since": permit.since,
        "until": until_of(permit.ttl, at),
    }


def told(event: Event, at: float) -> dict[str, Any]:
    """Return what has happened to a lock."""
    return {"at": at, **dataclasses.asdict(event)}
