"""The way of commands to the masters.  See `Node` for what the rest of the package relies on."""

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnv:
    """The parts of a manager that its nodes use."""

    clock: Clock
    random: Random
    node_timeout: float
    connect_timeout: float
    on_change: Callable[[Node], None]
    """Called when a node's state changes."""
    quorum_view: QuorumView | None = None
    """The quorum as the manager sees it; None when it uses no incarnation records."""
    prefix: bytes = b""
    """The beginning of all keys and channels (R16)."""
    on_time: Callable[[Node, Greeted], None] = lambda _node, _sample: None
    """Called when a node has answered with its time."""
    on_greeted: Callable[[Node, Greeted | None], None] = lambda _node, _greeted: None
    """Called when a node's incarnation record differs from before, or cannot be read: then with None."""
    on_notice: Callable[[Node, bytes, object], None] = lambda _node, _channel, _message: None
    """Called with each message that is published on a channel to which the node is subscribed."""


@runtime_checkable
class Node(Protocol):
    """One independent master, as the rest of the package sees it."""

    name: str
    """The address, without user or password."""
    tried: asyncio.Event
    """Set once the first attempt to reach the node has ended, one way or the other."""

    @property
    def status(self) -> NodeStatistics:
        """Its current status."""

    def bind(self, env: NodeEnv) -> None:
        """Get ready in the running loop; called once, before all other methods."""

    async def run(self) -> None:
        """Connect to the node and stay connected until cancelled.

        If it ends otherwise, by an error of its own code or of a library, `fail` is called, and then this
        again (R44).
        """

    def fail(self, reason: str) -> None:
        """End the connection, and answer what is in flight by silence: `run` has ended for this reason."""

    def submit(self, command: Command, receiver: Receiver, index: int) -> None:
        """Send `command` and have ``receiver.on_reply(index, reply)`` called once.

        A release that was answered by silence is answered once more if the node acknowledges it later.
        Never blocks and never raises; the callback may come before this returns.  Commands of one
        owner take effect in the order of their submission.
        """

    def subscribe(self, channel: bytes) -> None:
        """Have `NodeEnv.on_notice` called for each message on the channel, also after reconnects.

        Never blocks and never raises (R13).  Commands that are submitted after it are executed after it.
        """

    def unsubscribe(self, channel: bytes) -> None:
        """Undo `subscribe`."""

    def is_subscribed(self, channel: bytes) -> bool:
        """Whether that subscription is confirmed, on the present connection."""

    @property
    def can_hear(self) -> bool:
        """Whether the node can push notifications at all, as far as is known."""

    async def greet(self) -> None:
        """Ask now, rather than at the next heartbeat, whether the node may vote; await the answer (R12)."""

    def reconsider(self) -> None:
        """Judge the node again, since another node's answer may concern the whole quorum (R12a)."""

    @property
    def greeting_pending(self) -> bool:
        """Whether another greeting follows the last one at once or soon."""

    def suspect(self, jumped: bool) -> None:  # noqa: FBT001 (the one thing it says)
        """Withdraw the node's vote while its clock is suspected to have jumped; else restore it (R14)."""

    def quarantine_again(self, floor: int) -> None:
        """Begin the node's quarantine again, with this floor for fences: its clock has jumped (R14)."""

    async def aclose(self) -> None:
        """Send what is still queued and close the connection; in at most a `node_timeout` or so."""


@runtime_checkable
class NodeSource(Protocol):
    """A source that gives each manager a node of its own, such as `testing.MemoryNode`."""

    def link(self) -> Node:
        """Return a new node for one manager."""
