"""Facts about the nodes that a diagnosis has gathered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from ..._core.command import Silence
from ..._core.quarantine import Incarnation, parse


@final
class Lacking(NamedTuple):
    """Something that a node refuses, and locks, or those of other kinds, can do without."""

    what: str
    why: str
    right: str
    without: str  # how locks do without it


NOT_ASKED: Final = Silence("not asked", sent=False)  # for the answer to a question that was not put

RESP2: Final = Silence("the connection speaks RESP2", sent=False)
"""Stands for the answer to a subscription where it would put an end to all other commands."""

NO_COMMANDS: Final = "nocommands"  # a flag of our own, for a user that may do nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """A node's clock, seen from here; all nodes are read against the same clock."""

    offset: float  # seconds it is ahead of the reader's clock, whose beginning does not matter
    uncertainty: float  # seconds the offset may be wrong, either way


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts about one node; a `Silence` where it did not answer, with the reason."""

    name: str
    host: str | None = None  # where it is reached; None when not by a network address
    down: str = ""  # why it cannot be asked anything; empty when it can
    unverified: str | None = None
    """The part of the server's identity that TLS does not verify; empty: none, None: there is no TLS."""
    run_id: str | None = None
    other_run_ids: frozenset[str] = frozenset()
    """The run ids on further connections, where these were not `run_id`."""
    round_trip: float | None = None  # seconds
    info: Mapping[str, str] | Silence = NOT_ASKED  # its ``INFO``
    config: Mapping[str, str] | Silence = NOT_ASKED  # some of its configuration
    default_user: frozenset[str] | Silence = NOT_ASKED
    """The flags of the user that a connection without a login has."""
    clock: ClockReading | Silence = NOT_ASKED
    distrusted: bool = False  # whether its clock is suspected to have jumped (R14)
    incarnation: bytes | Silence | None = NOT_ASKED  # its incarnation record (R12); None when it has none
    votes_in: float | None = None  # seconds until its restart quarantine ends; None when there is none
    belongs_elsewhere: bool = False
    """Whether it or another node is another quorum's, or was a moment ago, or lists disagree (R12a, R12c)."""
    replaces: bool = False  # whether other clients use another server in its place, or did so lately (R12c)
    without_vote: bool = False  # whether it has no vote for now: only what needs none was tried
    failures: tuple[tuple[str, str], ...] = ()  # the steps of the trial that failed, and why
    lacking: tuple[Lacking, ...] = ()
    deaf: Silence | None = NOT_ASKED  # why it does not notify us of releases; None when it does (R13)
    mute: bool = False  # whether it refuses to publish our releases to others
    uncounted: bool = False  # whether it refuses to say how many waiters listen (R33)

    @property
    def readable_incarnation(self) -> Incarnation | None:
        """Its incarnation record, if there is one that can be read."""
        return parse(self.incarnation) if isinstance(self.incarnation, bytes) else None

    @property
    def quarantine(self) -> float:
        """Seconds it has no vote after it has lost its memory (R12); 0 when that is unknown."""
        incarnation = self.readable_incarnation
        return incarnation.quarantine_ms / 1000 if incarnation else 0.0

    @property
    def of_another_server(self) -> bool:
        """Whether another process wrote the record, or the data came from elsewhere; a replica's must."""
        incarnation = self.readable_incarnation
        if incarnation is None or isinstance(self.info, Silence) or "run_id" not in self.info:
            return False
        identity = self.info["run_id"] + self.info.get("master_replid", "")
        return self.info.get("role") != "slave" and incarnation.identity != identity.encode()

    @property
    def waits(self) -> bool:
        """Whether, without a vote, it will have one: a quarantine goes on, or begins with its first use."""
        return self.votes_in is not None or self.incarnation is None or self.of_another_server

    def explains_its_silence(self, size: int) -> bool:
        """Whether these facts say why it has no vote in a quorum of `size` nodes."""
        incarnation = self.readable_incarnation
        foreign = incarnation is not None and incarnation.size != size
        return self.distrusted or self.belongs_elsewhere or self.waits or foreign


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about all nodes of a manager."""

    nodes: tuple[NodeFacts, ...]
    prefix: bytes
    node_timeout: float  # seconds
    fencing: bool = True  # whether locks have fences
    quarantine: float | None = None
    """The restart quarantine that this client asks for, in seconds; None when that was not looked at."""
    strangers: tuple[str, ...] = ()  # the servers that clients use and this list lacks, in words (R12c)
