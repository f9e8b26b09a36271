"""What `status` and `release` have seen, for programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .overview import availability

if TYPE_CHECKING:
    from .. import LockInspection, PermitInspection, QueueInspection, ReaderInspection
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
        "nodes": [
            {
                "node": node.name,
                "state": str(node.state),
                "reason": node.reason,
                "votes_in": node.votes_in,
                "round_trip": node.round_trip,
            }
            for node in overview.nodes
        ],
        "locks": [
            {**lock_as_json(lock), "queue": queue_as_json(overview.queues.get(lock.name))}
            for lock in survey.locks
        ],
        "truncated": survey.truncated,
        "silent": [dataclasses.asdict(silent) for silent in survey.silent],
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
