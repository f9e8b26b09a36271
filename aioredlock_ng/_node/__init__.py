"""The way of commands to the masters.  See `redis_node.Node` for what the rest of the package relies on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final


class NodeState(StrEnum):
    """The state of a node, as this manager sees it."""

    CONNECTING = "connecting"
    """Being connected, for the first time or again."""
    UP = "up"
    QUARANTINED = "quarantined"
    """Connected, but without a vote: it has lost data, or may have (R12)."""
    READ_ONLY = "read-only"
    """Connected, but it refuses what an acquire writes: its memory is full, it lacks replicas, it cannot
    save, or a right is missing.  It is asked all the same: what it grants, such as an extension, counts."""
    SUSPECT = "suspect"
    """Connected, but commands have gone unanswered for a while: it is not asked to vote."""
    DOWN = "down"

    @property
    def reached(self) -> bool:
        """Whether the node answers."""
        return self in (NodeState.UP, NodeState.QUARANTINED, NodeState.READ_ONLY)

    @property
    def votes(self) -> bool:
        """Whether its answers count as votes: it remembers all that it granted."""
        return self in (NodeState.UP, NodeState.READ_ONLY)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatistics:
    """One node, as it stands now."""

    name: str
    state: NodeState
    reason: str = ""
    """Why it is not up; empty when it is."""
    round_trip: float | None = None
    """Seconds the last heartbeat took; None before the first."""
    in_flight: int = 0
    """Commands sent and not answered; a script for several locks counts once."""
    pending_releases: int = 0
    """Releases that the node has not acknowledged and that will be sent again (R5)."""
    dropped: int = 0
    """Releases given up because too many were unacknowledged; their keys end with their ttl."""
    mismatched: int = 0
    """Connections dropped because a reply came that cannot belong to its request (R15)."""
    votes_in: float | None = None
    """Seconds until a quarantined node may vote; None when it may, or when waiting does not help."""
    doubt: str = ""
    """Why it has to wait for that: its server did not prove that it has forgotten nothing (R12b)."""
    run_id: str | None = None
    """The run id of the server process; None when unknown."""
    unusable: str = ""
    """Why its server cannot be a node as it is: its Redis Cluster needs another prefix, or a client."""
    conflict: str = ""
    """Why the node cannot be in this quorum at all (A4); waiting does not change that."""
    lists_differ: bool = False
    """Whether a node of the list belongs to another quorum, or did so lately, or clients with another list
    came first (R12a, R12c)."""
    replaces: bool = False
    """Whether other clients use another server in its place, or did so lately: `init` would give both a vote
    (R12c)."""
    clock: float | None = None
    """Seconds that its clock is ahead of this machine's (R14); None when unknown."""

    @property
    def belongs_elsewhere(self) -> bool:
        """Whether the lists of nodes disagree about it, or lately did: then `init` is no way out."""
        return self.lists_differ or self.replaces


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Greeted:
    """The answer to a greeting, read; with its times it is a sample of the node's clock (R14)."""

    asked_at: float
    """Before the command was written, on the manager's clock."""
    heard_at: float
    """When the answer had been parsed."""
    time: float
    """The node's answer, in Unix seconds."""
    same_server: bool
    """Whether the same server with the same data answered before."""
    changed: bool
    """Whether its record differs from before, or the servers in use do: that may concern other nodes."""
    taken_from: str
    """The quorum from which the node was taken back just now; empty when it was not (R12a)."""
