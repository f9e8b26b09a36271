"""Whether a manager's nodes can be asked for a lock at all: not closed, not misconfigured, a quorum up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from .._core.quorum import majority
from .._core.validity import free_after
from .._node import Node, NodeState
from ..errors import ConfigurationError, ManagerClosedError


@final
class Availability:
    """What is known of that, without asking a node."""

    __slots__ = ("_nodes", "closing", "conflict", "failure")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.closing = False
        """Whether the manager takes no more acquires."""
        self.conflict: str | None = None
        """Why no lock can be trusted: two nodes are one server, or one belongs to another quorum (A4)."""
        self.failure: BaseException | None = None
        """What ended the background tasks, if they did not end in order."""

    def check(self) -> None:
        """Refuse to lock anything over nodes that cannot be one quorum (A4).

        Raises:
            ConfigurationError: names the nodes at fault.
        """
        if self.conflict is not None:
            raise ConfigurationError(self.conflict)

    def closed_error(self) -> ManagerClosedError:
        """Return the error for a call that comes after the end."""
        if self.failure is None:
            return ManagerClosedError("the lock manager is closed")
        error = ManagerClosedError(f"the lock manager has failed: {type(self.failure).__name__}")
        error.__cause__ = self.failure
        return error

    def seconds(self) -> float:
        """Return in how many seconds a majority may vote: what `LockManager.unavailable_for` describes."""
        if self.closing or self.conflict is not None:
            return math.inf
        statuses = [node.status for node in self._nodes]
        waits = [0.0 if s.state is NodeState.UP else s.votes_in for s in statuses]
        wait = free_after(waits, majority(len(waits)))
        return math.inf if wait is None else wait
