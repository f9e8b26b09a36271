"""The lines for fair locks, as `status` shows them beside the locks that are named."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._terminal import Line, printable

if TYPE_CHECKING:
    from .. import LockManager, QueueInspection


async def look_at_queues(manager: LockManager, names: Sequence[str]) -> dict[str, QueueInspection]:
    """Look at the line of each lock that is named."""
    return {name: await manager.queue(name) for name in dict.fromkeys(names)}


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


def queue_notes(queues: Iterable[QueueInspection], silent: Container[str]) -> list[Line]:
    """Say which nodes did not tell of a line, but of all else: a right is missing, say."""
    return [
        Line(f"{printable(each.node)} does not tell its line: {printable(each.reason)}", "warning")
        for queue in queues
        for each in queue.silent
        if each.node not in silent
    ]
