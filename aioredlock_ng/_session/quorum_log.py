"""Reports that no lock can be acquired any more, and when one can again: a log line and an event."""

from __future__ import annotations

import asyncio
import logging
import math
from contextvars import Context
from typing import Final, final

from .._core.quorum import majority
from .._core.quorum_view import HEARTBEAT
from .._lock.session import Session
from .._log import report
from .._node import NodeState
from ..events import QuorumChanged

STANDS: Final = 1.5 * HEARTBEAT
"""Seconds for which a change stands before it counts: a connection that is made again at once is none."""


@final
class QuorumLog:
    """Reports each change of `Availability` that counts, once a lock could be acquired for the first time.

    A quarantine and lists of nodes that disagree have lines of their own: their events have none here.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._available: bool | None = None
        """The last report; None: no lock could be acquired so far."""
        self._logged = False
        """Whether the outage was logged here, so that its end is, too."""
        self._changed_at = self._reported_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Look at the quorum; call it whenever that may have changed."""
        available, now = self._session.availability.seconds() == 0, self._session.clock.now()
        if self._available is None:
            self._available, self._reported_at = available or None, now
        elif available is self._available:
            self.close()
        elif self._timer is None:
            self._changed_at = now
            self._timer = self._session.loop.call_later(STANDS, self._report, available, context=Context())

    def close(self) -> None:
        """Report nothing of a change that does not count so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, available: bool) -> None:  # noqa: FBT001 (the one thing that it reports)
        session, self._timer, self._available = self._session, None, available
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
