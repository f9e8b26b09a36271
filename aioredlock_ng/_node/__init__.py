"""How commands reach the masters.  See `Node` for what the rest of the package relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol, final, runtime_checkable

from .._clock import Clock
from .._core.command import Command, Receiver
from .._core.quorum_view import QuorumView


class NodeState(StrEnum):
    """Where a node stands, seen from here."""

    CONNECTING = "connecting"
    """Not connected yet, or again being connected."""
    UP = "up"
    QUARANTINED = "quarantined"
    """Connected, but without a vote: it has lost its memory, or what it remembers is not known (R12)."""
    READ_ONLY = "read-only"
    """Connected, but it refuses what an acquire writes: its memory is full, it lacks replicas, it cannot
    save, or a right is missing.  It is asked all the same: what it grants, extensions perhaps, counts."""
    SUSPECT = "suspect"
    """Connected, but commands have gone unanswered for a while: it is not asked to vote."""
    DOWN = "down"

    @property
    def reached(self) -> bool:
        """Whether the node answers."""
        return self in (NodeState.UP, NodeState.QUARANTINED, NodeState.READ_ONLY)

    @property
    def votes(self) -> bool:
        """Whether it remembers all that it granted: what it answers is a vote."""
        return self in (NodeState.UP, NodeState.READ_ONLY)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node as it stands now."""

    state: NodeState
    reason: str = ""
    """Why it is not up, in words."""
    round_trip: float | None = None
    """Seconds the last heartbeat took; None before the first."""
    in_flight: int = 0
    """Commands sent and not answered yet."""
    pending_releases: int = 0
    """Releases that the node has not acknowledged (the release ledger, R5)."""
    dropped: int = 0
    """Entries given up because the ledger was full; their keys end with their ttl."""
    run_id: str | None = None
    """The server process's own name for itself; None when unknown."""
    mismatched: int = 0
    """Connections dropped because a reply came that cannot belong to its request (R15)."""
    votes_in: float | None = None
    """Seconds until it may vote again; None when it may, or when waiting does not help."""
    unusable: str = ""
    """Why its server cannot be a node as it is: its Redis Cluster needs another prefix, or a client."""
    conflict: str = ""
    """Why the node cannot be in this quorum at all, whatever happens (A4)."""
    belongs_elsewhere: bool = False
    """Whether a node of the list is another quorum's, or was a moment ago: `init` is no way out (R12a)."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSample:
    """A node's clock, read once (R14)."""

    asked_at: float
    """Before the question was written, on the manager's clock."""
    heard_at: float
    """When the answer had been parsed."""
    time: float
    """What the node said: Unix seconds."""
    same_server: bool
    """False when another server answered before, or none."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnv:
    """What a manager lends its nodes."""

    clock: Clock
    random: Random
    node_timeout: float
    connect_timeout: float
    on_change: Callable[[Node], None]
    """Called when a node's state changes."""
    quorum_view: QuorumView | None = None
    """The quorum as the manager sees it; None when nothing rests on incarnation records."""
    prefix: bytes = b""
    """How all keys and channels begin (R16)."""
    on_time: Callable[[Node, TimeSample], None] = lambda _node, _sample: None
    """Called when a node has told its time."""
    on_greeted: Callable[[Node], None] = lambda _node: None
    """Called when a node's incarnation record is another one than before, or cannot be read."""
    on_taken_back: Callable[[Node, str], None] = lambda _node, _from: None
    """Called when a node was taken back from another quorum, with what is known of that (R12a)."""
    on_notice: Callable[[Node, bytes, object], None] = lambda _node, _channel, _message: None
    """Called with what was published on a channel that a node listens to."""


@runtime_checkable
class Node(Protocol):
    """One independent master, as the rest of the package sees it."""

    name: str
    """The address, without user or password."""
    settled: asyncio.Event
    """Set once the first attempt to reach the node has ended, one way or the other."""

    @property
    def status(self) -> NodeStatus:
        """How it stands now."""

    def bind(self, env: NodeEnv) -> None:
        """Get ready in the running loop; called once, before anything else."""

    async def run(self) -> None:
        """Reach the node and stay connected until cancelled.  Never raises anything else."""

    def submit(self, command: Command, receiver: Receiver, index: int) -> None:
        """Send `command` and have ``sink.on_reply(index, reply)`` called once.

        For a release that was answered by silence, once more when the node acknowledges it after all.
        Never blocks and never raises; the call back may come before this returns.  Commands of one
        owner take effect in the order of their submission.
        """

    def subscribe(self, channel: bytes) -> None:
        """Have `NodeEnv.on_notice` called whenever something is published there, over reconnects too.

        Never blocks and never raises (R13).  What is submitted after it is executed after it.
        """

    def unsubscribe(self, channel: bytes) -> None:
        """Take `subscribe` back."""

    def is_subscribed(self, channel: bytes) -> bool:
        """Whether that subscription stands: confirmed, on the present connection."""

    @property
    def can_hear(self) -> bool:
        """Whether it can tell of notices at all, as far as is known."""

    async def greet(self) -> None:
        """Ask now, rather than at the next heartbeat, whether the node may vote; await the answer (R12)."""

    def reconsider(self) -> None:
        """Look at the node anew, since another one's answer may concern the whole quorum (R12a)."""

    @property
    def greeting_pending(self) -> bool:
        """Whether another greeting follows the last one at once or soon."""

    def suspect(self, jumped: bool) -> None:  # noqa: FBT001 (the one thing it says)
        """Take the node's vote away while its clock is suspected to have jumped; give it back (R14)."""

    def restart_quarantine(self, floor: int) -> None:
        """Let the node's quarantine begin anew, with this floor for fences: its clock has jumped (R14)."""

    async def aclose(self) -> None:
        """Send what is still queued and let the connection go; at most a `node_timeout` or so."""


@runtime_checkable
class NodeSource(Protocol):
    """Something that gives every manager a node of its own, such as `testing.MemoryNode`."""

    def link(self) -> Node:
        """Return a new node for one manager."""
