"""All that was seen as JSON values: for programs, and for the page.

Names and labels go as they are: whatever bytes a key has (those that are not UTF-8 as lone surrogates,
PEP 383), JSON escapes them, and the page shows them as text.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .. import LockInspection, NodeStatistics, QueueInspection
    from .changes import Event
    from .overview import Overview

Value: TypeAlias = dict[str, Any]

_READER = "holder since ttl"
_PERMIT = "slot holder since ttl"


def overview_as_json(overview: Overview) -> Value:
    """Return what ``status --json`` prints."""
    survey = overview.survey
    assert survey is not None, "a problem is shown elsewhere"
    return {
        "at": survey.at,
        **nodes_as_json(overview),
        "strangers": overview.strangers,
        "locks": [lock_as_json(lock, overview.queues.get(lock.name)) for lock in survey.locks],
        "truncated": survey.truncated,
    }


def nodes_as_json(overview: Overview) -> Value:
    """Return the state of the nodes, and what it means for locks."""
    survey = overview.survey
    return {
        **availability(overview.unavailable_for),
        **_fields(overview, "quorum margin answered"),
        "nodes": [_node(node) for node in overview.nodes],
        "silent": _all(() if survey is None else survey.silent, "node reason"),
    }


def availability(seconds: float) -> Value:
    """Return whether a lock can be acquired, and for how many more seconds not; None: it is not known."""
    return {"available": seconds == 0, "unavailable_for": seconds if math.isfinite(seconds) else None}


def _node(node: NodeStatistics) -> Value:
    return {"node": node.name, **_fields(node, "state reason votes_in round_trip clock")}


def lock_as_json(lock: LockInspection, queue: QueueInspection | None = None) -> Value:
    """Return one lock, with its queue where that was looked at."""
    return {
        **_fields(lock, "name state kind holder since ttl held_by shared highest_fence more_readers"),
        "readers": _all(lock.readers, f"{_READER} held_by"),
        "permits": _all(lock.permits, f"{_PERMIT} held_by"),
        "nodes": [
            {
                **_fields(node, "node held kind holder since ttl reason more_readers fence_counter"),
                "readers": _all(node.readers, _READER),
                "permits": _all(node.permits, _PERMIT),
            }
            for node in lock.nodes
        ],
        "queue": None
        if queue is None
        else {
            "waiters": _all(queue.waiters, "place holder since known_to"),
            "writers": queue.writers,
            "more_waiters": queue.more_waiters,
            "silent": _all(queue.silent, "node reason"),
        },
    }


def _all(each: Iterable[object], names: str) -> list[Value]:
    return [_fields(one, names) for one in each]


def _fields(of: object, names: str) -> Value:
    return {name: getattr(of, name) for name in names.split()}


def event_as_json(event: Event, at: float) -> Value:
    """Return what has happened to a lock, and when that was seen."""
    return {"at": at, **dataclasses.asdict(event)}


def dumped(value: object) -> str:
    """Return it as JSON in ASCII, on one line: an event of a stream ends at an empty one."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# -- for the page, which counts the time down itself --------------------------------------------------


def row(lock: LockInspection, at: float, queue: QueueInspection | None) -> Value:
    """Return a lock as a line of the table, which says of most looks what it said of the one before."""
    line = _line_of(lock, queue)
    return {
        **_fields(lock, "state kind holder since held_by highest_fence more_readers"),
        "until": None if lock.ttl is None else round(at + lock.ttl, 3),
        "size": len(lock.nodes),
        "readers": len(lock.readers),
        "permits": len({permit.slot for permit in lock.permits}),
        "waiting": None if line is None else len(line.waiters) + len(line.writers),
        "more_waiting": line is not None and line.more_waiters,
    }


def in_full(lock: LockInspection, at: float, queue: QueueInspection | None) -> Value:
    """Return all that is known of one lock: its line of the table, and the whole of it."""
    return {**row(lock, at, queue), **lock_as_json(lock, _line_of(lock, queue)), "at": at}


def _line_of(lock: LockInspection, queue: QueueInspection | None) -> QueueInspection | None:
    """Return the queue of a lock that has one: a fair one, or one that others wait for."""
    waits = queue is not None and (queue.waiters or queue.writers or lock.kind == "fair")
    return queue if waits else None
