"""Which servers are the members of a quorum: lists of nodes that disagree are noticed (A4, R12c).

Clients with the lists a, b, x and a, b, y do not exclude each other: x and b may grant a lock to one of them,
and a and y the same lock to the other.  So with each greeting a client says which servers it uses, or has
used a moment ago, by their identities, and every node keeps that for as long as a lock of such a client can
live.  A client counts all servers that it or others use, and one more for each node that it does not reach or
that has lost its memory, which may know of another.  Where they are so many that two majorities need not
meet, only the first 2Q - 1 of them count, by the time since when they have been used.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from .quarantine import moment, shown_label

NOT_USED: Final = 10**15
"""Stands for the time since when a server has been used that a client lists, and may not use."""

WAITS: Final = NOT_USED - 1
"""The same for a server that has no vote so far, in the place of one that was used: before any newcomer."""

COMPARE: Final = (
    "give all clients the same nodes: compare their lists "
    "(docs/how-to/operating.md#changing-the-list-of-nodes says how to change them)"
)
"""What to do about lists that disagree."""

COMPARE_FIRST: Final = f"if no server was replaced, {COMPARE}"
"""What to do where clients use another server in a node's place: `init` would give both a vote."""

_RUN_ID: Final = 40
"""Characters at the beginning of an identity that are the server's ``run_id``."""

_LINE: Final = re.compile(rb"(\d{1,17}):(\S{1,200}) (\d{1,17}) (\d{1,17}) ([^\n]*)\n")

_PACE: Final = re.compile(rb"~(\d{1,9})")


@final
class Member(NamedTuple):
    """A server that some client uses, as a node has heard it."""

    identity: bytes
    since_ms: int
    age_ms: int
    """How long ago a client used it last; of one that is not used: how long ago a client said that."""
    label: bytes
    """The holder label of that client."""

    @property
    def used(self) -> bool:
        """Whether it had a vote, and maybe for a lock that is alive."""
        return self.since_ms < WAITS


def read_members(lines: bytes, now_ms: int, *, size: int) -> tuple[Member, ...]:
    """Read what a node has answered, as far as it is of clients with so many nodes."""
    return tuple(
        Member(identity, int(since), max(0, now_ms - int(seen)), label)
        for nodes, identity, since, seen, label in _LINE.findall(lines)
        if int(nodes) == size
    )


def pace(heartbeat_ms: float) -> bytes:
    """Return what a client tells, as if it was a server, whose heartbeat is longer than usual."""
    return b"~%.0f" % heartbeat_ms


def pace_ms(identity: bytes) -> int:
    """Return the heartbeat that a client has told in place of a server; 0 for a server."""
    found = _PACE.fullmatch(identity)
    return int(found[1]) if found else 0


def server_of(member: Member) -> str:
    """Return a server in words: which one, since when, and which client says so."""
    run_id = shown_label(member.identity[:_RUN_ID])
    label = shown_label(member.label)
    since = f"used since {moment(member.since_ms)}" if member.used else "not used so far"
    return f"the one with run_id {run_id} ({since}, says client {label})"


def not_in_list(server: str) -> str:
    """Say that a server is in another client's list and not in this one; see `COMPARE`."""
    return f"another client's list of nodes has a server that this list lacks, {server}"


@final
@dataclass(frozen=True, slots=True)
class Membership:
    """Which of a client's servers may not vote, and why."""

    others: Mapping[bytes, Member] = field(default_factory=dict)
    """For each of them: the server that others use in its place, and used first."""
    hidden: bool = False
    """Whether there is none so far, but nodes without a vote may know of one."""
    strangers: tuple[Member, ...] = ()
    """The servers in use that this client's list lacks: the lists of nodes disagree."""
    disputed: bool = False
    """Whether one of them came first: this client is refused."""

    @property
    def gist(self) -> tuple[object, ...]:
        """What of it concerns other nodes when it changes."""
        return self.others.keys(), self.disputed, {(one.identity, one.since_ms) for one in self.strangers}

    def reason(self, server: bytes) -> str:
        """Say why a server may not vote; empty if it may."""
        other = self.others.get(server)
        if other is None:
            return ""
        if self.hidden:
            return (
                f"clients used another server a moment ago, {server_of(other)}; until the nodes that "
                "have no vote answer, it may count in place of this one"
            )
        return (
            f"other clients use another server in its place, {server_of(other)}: their list of nodes is "
            "another one, or the server was replaced a moment ago"
        )


def membership(
    listed: Iterable[bytes],
    voting: Iterable[bytes],
    told: Iterable[Member],
    successors: Container[bytes],
    *,
    size: int,
    quorum: int,
    alive_ms: int,
) -> Membership:
    """Decide which servers may vote for a client.

    Args:
        listed: the identities of the servers that are, or were, behind its list.
        voting: those of them that would vote, by their incarnation records, or have been there for so long
            that others which are heard of cannot be those before them.
        told: the servers that this client and others use, and for which a lock may be alive.
        successors: the servers that this client has used earlier, or that came in the place of one that was
            used.
        size: how many nodes the list has.
        quorum: the size of a majority.
        alive_ms: for how long a server counts as in use by a client that has told of it.
    """
    own, candidates = set(listed), set(voting)
    # A server may be told as used by one client, and as not used by another.
    told = sorted(told, key=lambda one: (not one.used, one.age_ms))
    known: dict[bytes, Member] = {}
    for member in told:
        known.setdefault(member.identity, member)
    # Those that had a vote, or wait in the place of one that had.
    every = candidates.union(one.identity for one in known.values() if one.since_ms < NOT_USED)
    # A node that is not reached, or has lost its memory, may be used beside a server that it alone knows of.
    hidden = [b"?%d" % number for number in range(size - len(candidates))]
    # Any two majorities of so many servers share one: whichever the lists are, they exclude each other.
    first, late = every, list[bytes]()
    if len(every) + len(hidden) >= 2 * quorum:
        ranked = sorted((*every, *hidden), key=lambda one: _rank(one, own, known, successors))
        first = set(ranked[: 2 * quorum - 1])
        late = sorted(candidates - first)
    rivals = sorted((known[one] for one in every & (first - candidates)), key=lambda member: member.age_ms)
    # As many as there are such nodes may be their servers.
    foreign = [member for member in rivals if member.identity not in own]
    strangers = foreign if len(foreign) > len(hidden) else []
    others = dict.fromkeys(late, (strangers or rivals)[0]) if late else {}
    # Not for one that was in a place of this list a moment ago: it was restarted or replaced.
    disputed = bool(late) and any(member.age_ms < alive_ms for member in strangers)
    alive = {one.identity: one for one in reversed(told) if one.age_ms < alive_ms and one.identity not in own}
    enough = len(candidates) + len(alive) >= 2 * quorum
    seen = tuple(alive.values()) if enough else ()
    return Membership(others, hidden=bool(late) and not strangers, strangers=seen, disputed=disputed)


def _rank(
    server: bytes, own: Container[bytes], known: Mapping[bytes, Member], successors: Container[bytes]
) -> tuple[object, ...]:
    """Return the place of a server among all.

    First come those in use, then those that may be hidden.  Of the others a successor is before newcomers;
    among successors each client puts its own first: another client's may be one that it has not met.
    """
    if server.startswith(b"?"):
        return 1, 0, False, server
    since = WAITS if server in successors else NOT_USED
    if server in known:
        since = min(since, known[server].since_ms)
    waits = since >= WAITS
    return 2 if waits else 0, since, waits and server not in own, server
