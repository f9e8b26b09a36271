"""A lock that is released from the page: what was shown must still be so."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .. import ConfigurationError, LockError
from .._log import report
from .agreed import Agreed, One, gone, why_not
from .overview import look
from .wire import in_full

if TYPE_CHECKING:
    from .. import LockManager


def asked(body: dict[str, Any]) -> tuple[str, Agreed] | None:
    """Return which lock a request names, and as what it was shown; None when it does not say so."""
    name, state = body.get("name"), body.get("state")
    readers, permits = _ones(body.get("readers")), _ones(body.get("permits"), 1)
    one = _one((body.get("holder"), body.get("since")))
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
    ones = [_one(tuple(each[skipped:])) if isinstance(each, list) else None for each in value]
    return None if None in ones else frozenset(one for one in ones if one is not None)


def _one(value: tuple[object, ...]) -> One | None:
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
