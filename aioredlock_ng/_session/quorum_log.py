"""The log of a quorum: quarantines (R12), and when no lock can be acquired, and can be again."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from contextvars import Context
from typing import Final, final

from .._core.members import COMPARE_FIRST
from .._core.quorum import majority
from .._core.quorum_view import HEARTBEAT
from .._lock.session import Session
from .._log import report
from .._node import NodeState
from .._node.redis_node import Node
from ..events import QuorumChanged

STANDS: Final = 1.5 * HEARTBEAT
"""Seconds for which a change stands before it counts: a connection that is made again at once is none."""

GATHER: Final = 0.75
"""Seconds until a line is logged: all nodes that lose their memory together are found within a heartbeat."""

CAUSES: Final = "first use, restart, flush, failover, a first replica or a jump of the clock"

WAY_OUT: Final = "if no lock can be alive, `aioredlock-ng init` ends the wait"
"""The advice for nodes that wait; not given where another quorum uses a node, since it would do harm."""


@final
class QuorumLog:
    """Logs the nodes that have no vote for a while, and reports each change of `Availability` that counts.

    All nodes that begin to wait within a moment have one line, and their end has one.  Availability is
    reported once a lock could be acquired for the first time; a quarantine and lists of nodes that disagree
    have lines of their own, so that their events have none here.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: set[Node] = set()  # those whose wait was logged
        self._gathers: asyncio.TimerHandle | None = None
        self._starting = True
        self._available: bool | None = None  # the last report; None: no lock could be acquired so far
        self._logged = False  # whether the outage was logged here, so that its end is, too
        self._changed_at = self._reported_at = 0.0
        self._change: asyncio.TimerHandle | None = None

    def started(self) -> None:
        """Log what all nodes have said by now."""
        self._starting = False
        self._log_waiting()

    def check(self) -> None:
        """Look at the nodes and the quorum; call it whenever either may have changed."""
        session, nodes = self._session, self._session.nodes
        # All nodes that were logged have ended their wait, each in its own way.
        if self._waiting and not any(node.status.state is NodeState.QUARANTINED for node in self._waiting):
            self._waiting.clear()
            up = sum(node.status.state is NodeState.UP for node in nodes)
            report(logging.INFO, "the quarantine is over: %d of %d nodes may vote", up, len(nodes))
        # One more node waits.  Others may follow within a moment: one line for all of them.
        if not (self._starting or self._gathers or self._wait_now() <= self._waiting):
            self._gathers = session.loop.call_later(GATHER, self._log_waiting, context=Context())
        available, now = session.availability.seconds() == 0, session.clock.now()
        if self._available is None:
            self._available, self._reported_at = available or None, now
        elif available is self._available:
            # A change that did not stand is none.
            if self._change is not None:
                self._change.cancel()
                self._change = None
        elif self._change is None:
            self._changed_at = now
            self._change = session.loop.call_later(STANDS, self._report, available, context=Context())

    def close(self) -> None:
        """Log nothing more."""
        for timer in (self._gathers, self._change):
            if timer is not None:
                timer.cancel()

    def _wait_now(self) -> set[Node]:
        return {node for node in self._session.nodes if node.status.votes_in is not None}

    def _log_waiting(self) -> None:
        self._gathers, waiting = None, self._wait_now()
        if not waiting <= self._waiting:
            unavailable_for = self._session.availability.seconds()
            report(logging.WARNING, "%s", message_about(self._session.nodes, waiting, unavailable_for))
        self._waiting = waiting

    def _report(self, available: bool) -> None:  # noqa: FBT001 (the one thing that it reports)
        session, self._change, self._available = self._session, None, available
        missing = [node for node in session.nodes if node.status.state is not NodeState.UP]
        event = QuorumChanged(
            available=available,
            up=len(session.nodes) - len(missing),
            needed=majority(len(session.nodes)),
            reason="; ".join(f"{node.name} is {node.status.state}: {node.status.reason}" for node in missing),
            lasted=self._changed_at - self._reported_at,
        )
        self._reported_at = self._changed_at
        if available and self._logged:
            report(logging.INFO, "locks can be acquired again, after %.1f s", event.lasted)
        # The others are in the log of the quarantine, and reported as a misconfiguration.
        waits = math.isfinite(session.availability.seconds())
        self._logged = not available and not waits and session.availability.conflict is None
        if self._logged:
            report(
                logging.WARNING,
                "no lock can be acquired any more: %d of %d nodes are up, %d are needed (%s)",
                event.up,
                len(session.nodes),
                event.needed,
                event.reason,
            )
        session.hooks.tell(event)


def message_about(nodes: Sequence[Node], waiting: Collection[Node], unavailable_for: float) -> str:
    """Return the message about the nodes that wait: which nodes, how long, why, and what to do."""
    names = ", ".join(node.name for node in nodes if node in waiting)
    statuses = [node.status for node in waiting]
    wait = max(status.votes_in or 0.0 for status in statuses)
    subject = f"node {names} has" if len(waiting) == 1 else f"nodes {names} have"
    if unavailable_for == 0:
        locks = "the other nodes grant locks meanwhile"
    elif math.isfinite(unavailable_for):
        locks = f"no lock can be acquired for another {unavailable_for:.1f} s"
    else:
        locks = "too few of the others are up"  # `QuorumLog` says what that means
    # Where no server says why, such as after a jump of a clock, it may be any of the causes.
    doubts = sorted({status.doubt for status in statuses} - {""})
    way_out = COMPARE_FIRST if any(status.replaces for status in statuses) else WAY_OUT
    why = f"locks that are still held may have been lost ({'; '.join(doubts) or CAUSES}); {way_out}"
    return f"quarantine: {subject} no vote for another {wait:.1f} s, and {locks}: {why}"
