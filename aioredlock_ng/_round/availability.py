"""Whether a manager can acquire locks at all: it is not closed or misconfigured, and a quorum is up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import final

from .._core.quorum import majority
from .._core.validity import free_after
from .._node import NodeState
from .._node.redis_node import Node
from ..errors import ConfigurationError, ManagerClosedError


@final
class Availability:
    """The state of one manager, without asking a node."""

    __slots__ = ("_nodes", "closing", "conflict", "disputed", "failure", "strangers")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.closing = False
        """Whether the manager accepts no more acquires."""
        self.conflict: str | None = None
        """Why no lock can be trusted: two nodes are the same server, or one is in another quorum (A4)."""
        self.disputed = False
        """Whether clients with this list are refused, since others came first: also known to a manager that
        only reads, which has no conflict of its own (R12c)."""
        self.strangers: tuple[str, ...] = ()
        """The servers that other clients use and this list of nodes lacks, in words (R12c)."""
        self.failure: BaseException | None = None
        """The error that ended the background tasks, if `aclose` has not."""

    def check(self) -> None:
        """Raise an error if the nodes cannot be one quorum (A4).

        Raises:
            ConfigurationError: names the nodes at fault.
        """
        if self.conflict is not None:
            raise ConfigurationError(self.conflict)

    def closed_error(self) -> ManagerClosedError:
        """Return the error for a call after the end of the manager."""
        # Closed by its user: the usual case.
        if self.failure is None:
            return ManagerClosedError("the lock manager is closed")
        # Ended by others, or by an error of its own.
        why = (
            "other code cancelled the background tasks of the lock manager"
            if isinstance(self.failure, asyncio.CancelledError)
            else f"the lock manager has failed: {type(self.failure).__name__}"
        )
        error = ManagerClosedError(f"{why}; the next call starts it again")
        error.__cause__ = self.failure
        return error

    def seconds(self) -> float:
        """Return the seconds until a majority may vote, as `LockManager.unavailable_for` describes."""
        # No amount of waiting helps.
        if self.closing or self.disputed or self.conflict is not None:
            return math.inf
        statuses = [node.status for node in self._nodes]
        # Example of five nodes: two are up, one may vote in 10 s, one in 60 s, and one is down.  A majority
        # may vote in 10 s.
        waits = [0.0 if s.state is NodeState.UP else s.votes_in for s in statuses]
        wait = free_after(waits, majority(len(waits)))
        return math.inf if wait is None else wait
