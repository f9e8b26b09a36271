"""A lock that is released from the page, or by the command: what was agreed to must still be so."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias, final

from .. import ConfigurationError, LockError
from .._log import report
from .overview import look
from .wire import in_full

if TYPE_CHECKING:
    from .. import LockInspection, LockManager, NodeInspection, PermitInspection, ReaderInspection


One: TypeAlias = tuple[str | None, float | None]
"""A holder: its label, and since when."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """The lock as it was shown, whose end was agreed to."""

    state: str
    holder: str | None
    since: float | None
    shared: bool
    """Whether readers have it."""
    readers: frozenset[One]
    more_readers: bool
    """Whether there were more than could be shown: the end of all of them was agreed to."""
    permits: frozenset[One]

    @classmethod
    def of(cls, lock: LockInspection) -> Agreed:
        """Return what is shown of a lock."""
        return cls(
            state=lock.state,
            holder=lock.holder,
            since=lock.since,
            shared=lock.shared,
            readers=frozenset(map(_one, lock.readers)),
            more_readers=lock.more_readers,
            permits=frozenset(map(_one, lock.permits)),
        )

    def covers(self, now: LockInspection) -> bool:
        """Whether it is still the lock of that holder, or of readers or permits that were all shown."""
        if self.permits and now.permits:
            return self.permits.issuperset(map(_one, now.permits))
        if self.shared and now.shared:
            return self.more_readers or self.readers.issuperset(map(_one, now.readers))
        shown = (self.shared, self.state, self.holder, self.since)
        return shown == (now.shared, now.state, now.holder, now.since)


def _one(each: ReaderInspection | PermitInspection) -> One:
    return each.holder, each.since


def gone(node: NodeInspection) -> bool:
    """Whether a node that was told to delete the key has done so, also where it was no lock."""
    return node.held is not None or node.wrong_type


def why_not(node: NodeInspection) -> str:
    """Return why it has not; empty when it has."""
    return "" if gone(node) else node.reason


def asked(body: dict[str, Any]) -> tuple[str, Agreed] | None:
    """Return which lock a request names, and as what it was shown; None when it does not say so."""
    name, state = body.get("name"), body.get("state")
    readers, permits = _ones(body.get("readers")), _ones(body.get("permits"), 1)
    one = _read_one((body.get("holder"), body.get("since")))
    if not isinstance(name, str) or not isinstance(state, str) or one is None or None in (readers, permits):
        return None
    return name, Agreed(
        state=state,
        holder=one[0],
        since=one[1],
        shared=bool(readers),
        readers=readers or frozenset(),
        more_readers=body.get("more") is True,
        permits=permits or frozenset(),
    )


def _ones(value: object, skipped: int = 0) -> frozenset[One] | None:
    """Read a list of holders, without the first so many items of each."""
    if not isinstance(value, list):
        return None
    ones = [_read_one(tuple(each[skipped:])) if isinstance(each, list) else None for each in value]
    return None if None in ones else frozenset(one for one in ones if one is not None)


def _read_one(value: tuple[object, ...]) -> One | None:
    match value:
        case (str() | None as holder, int() | float() | None as since):
            return holder, since
    return None


async def release(
    manager: LockManager, name: str, shown: Agreed, *, address: str
) -> tuple[int, dict[str, Any]]:
    """Delete a lock on all nodes if it is still as it was shown; return an HTTP status and what to say."""
    try:
        seen = await look(manager, (name,))
    except LockError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"detail": str(error)}
    except ValueError as error:
        return HTTPStatus.UNPROCESSABLE_ENTITY, {"detail": f"{error}: this is not a lock of this library"}
    if seen.survey is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"detail": seen.problem}
    if seen.answered < seen.quorum:
        answered = f"{seen.answered} of {len(seen.nodes)} nodes answered, {seen.quorum} are needed"
        return HTTPStatus.SERVICE_UNAVAILABLE, {"detail": f"{answered}: nothing was changed"}
    (lock,) = seen.survey.locks
    if lock.state == "free" or not shown.covers(lock):
        why = "the lock is free" if lock.state == "free" else "the lock has changed hands meanwhile"
        now = in_full(lock, seen.survey.at, None)
        return HTTPStatus.CONFLICT, {"detail": f"{why}: nothing was changed", "lock": now}
    try:
        nodes = await manager.force_release(name)
    except (ConfigurationError, LockError) as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"detail": str(error)}
    except asyncio.CancelledError:
        log = (
            "lock %s may have been released from the dashboard by %s: the server stopped before the "
            "nodes answered"
        )
        report(logging.WARNING, log, ascii(name), address, lock=(name,), kind=lock.kind)
        raise
    deleted = sum(map(gone, nodes))
    report(
        logging.WARNING,
        "lock %s, held by %s, was released from the dashboard by %s: deleted on %d of %d nodes",
        ascii(name),
        ascii(lock.holder),
        address,
        deleted,
        len(nodes),
        lock=(name,),
        kind=lock.kind,
    )
    left = [{"node": node.node, "reason": why_not(node)} for node in nodes if not gone(node)]
    return HTTPStatus.OK, {"deleted": deleted, "nodes": len(nodes), "left": left}
