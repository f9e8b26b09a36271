"""The counts of a manager, and the values that describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from ._core.members import COMPARE, not_in_list
from ._core.quorum import majority
from ._node import NodeState, NodeStatistics

MAX_LEASES: Final = 1000
"""Leases that `ManagerStatistics.leases` lists; of more, the newest."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatistics:
    """One lease that is held now."""

    names: tuple[str, ...]
    label: str
    fence: int | None
    """None without fencing."""
    age: float
    """Seconds since the lock was asked for, or handed off by another task of this process."""
    kind: str = "mutex"
    """``"mutex"``, ``"fair"``, ``"semaphore"``, ``"leader"``, or of a read-write lock ``"read"`` or
    ``"write"``: what it is now."""


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts of all parts of one manager, from its start."""

    acquired: int = 0
    handed_off: int = 0
    """Of these, the ones that came from another task of this process, for which no node was asked (R43)."""
    refused: int = 0
    """Attempts that did not get the lock, those included that a task of this process was in the way of, for
    which no node was asked; of those that were cancelled, the ones that had been decided."""
    gave_up: int = 0
    """Calls of `acquire` and `try_acquire` that ended without the lock: see `events.GaveUp`."""
    extended: int = 0
    lost: int = 0
    released: int = 0
    certified: int = 0
    """Fences that took one round trip, since the nodes agreed at once."""
    raised: int = 0
    """Fences that took two."""
    uncertified: int = 0
    """Tries given up because the nodes did not agree on a fence; of those that are `refused`."""
    topped_up: int = 0
    """Keys given back to nodes that had lost them."""
    quarantined: int = 0
    """Times that a node was found without a vote."""
    steps: int = 0
    """Jumps of nodes' clocks that were noticed."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ManagerStatistics(Counters):
    """A manager, as it stands now; the counters run from its start."""

    nodes: tuple[NodeStatistics, ...]
    held: int
    """Leases that are ours now."""
    leases: tuple[LeaseStatistics, ...]
    """These leases, oldest first; of more than 1,000 the newest."""
    waiting: int
    """Acquires that wait for their turn or their next try."""
    conflict: str | None
    """Why nothing can be locked, whatever the nodes answer: see `ConfigurationError`."""
    closed: bool = False
    """Whether it is closed, or being closed: nothing can be locked until it is used in another loop."""
    strangers: tuple[str, ...] = ()
    """The servers that other clients use and this manager's list of nodes lacks: which, since when, and which
    client says so (R12c)."""

    @property
    def disagreement(self) -> tuple[str, ...]:
        """Sentences about clients with another list of nodes: the `strangers`, and what to do; else empty."""
        return (*map(not_in_list, self.strangers), COMPARE) if self.strangers else ()

    @property
    def quorum_margin(self) -> int:
        """The number of the nodes with a vote that can fail before nothing can be locked any more.

        Less than 0: the number of nodes that are missing.  None may vote while there is a `conflict`.
        """
        voting = 0 if self.conflict else sum(node.state is NodeState.UP for node in self.nodes)
        return voting - majority(len(self.nodes))
