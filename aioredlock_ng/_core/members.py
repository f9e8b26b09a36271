"""Which servers are the members of a quorum: lists of nodes that disagree are noticed (A4, R12c).

Clients with the lists a, b, x and a, b, y do not exclude each other: x and b may grant a lock to one of them,
and a and y the same lock to the other.  So with each greeting a client says which servers it uses, by their
identities, and every node keeps that for as long as a lock of such a client can live.  A client counts all
servers that it or others use.  Where they are so many that two majorities need not meet, only the first
2Q - 1 of them count, by the time since when they have been used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

_RUN_ID: Final = 40
"""Characters at the beginning of an identity that are the server's ``run_id``."""

_LINE: Final = re.compile(rb"(\d+):(\S+) (\d+) (\d+) ([^\n]*)\n")


@final
class Member(NamedTuple):
    """A server that some client uses, as a node has heard it."""

    identity: bytes
    since_ms: int
    age_ms: int
    """How long ago a client has said that it uses the server."""
    label: bytes
    """The holder label of that client."""


def read_members(lines: bytes, now_ms: int, *, size: int) -> tuple[Member, ...]:
    """Read what a node has answered, as far as it is of clients with so many nodes."""
    return tuple(
        Member(identity, int(since), max(0, now_ms - int(seen)), label)
        for nodes, identity, since, seen, label in _LINE.findall(lines)
        if int(nodes) == size
    )


def in_its_place(other: Member) -> str:
    """Say that other clients use another server, and which one."""
    return (
        f"other clients use another server in its place, {server_of(other)}: their list of nodes is another "
        "one, or the server was replaced a moment ago"
    )


def server_of(member: Member) -> str:
    """Return a server in words: which one, since when, and which client says so."""
    run_id = member.identity[:_RUN_ID].decode(errors="replace")
    label = shown_label(member.label)
    since = f"used since {moment(member.since_ms)}" if member.since_ms < WAITS else "not used so far"
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
    strangers: tuple[Member, ...] = ()
    """The servers in use that this client's list lacks: the lists of nodes disagree."""
    disputed: bool = False
    """Whether one of them came first: this client is refused."""

    @property
    def gist(self) -> tuple[object, ...]:
        """What of it concerns other nodes when it changes."""
        return self.others.keys(), self.disputed, {(one.identity, one.since_ms) for one in self.strangers}


def _rank(identity: bytes, since_ms: int, foreign: bool) -> tuple[object, ...]:  # noqa: FBT001
    """Return the place of a server among all.

    Among servers that wait each client puts its own first: another client's may be one that it has not met.
    """
    return since_ms, since_ms >= WAITS and foreign, identity


def membership(
    listed: Iterable[bytes],
    voting: Iterable[bytes],
    heard: Iterable[Member],
    since_ms: Mapping[bytes, int],
    *,
    quorum: int,
    life_ms: int,
    alive_ms: int,
) -> Membership:
    """Decide which servers may vote for a client.

    Args:
        listed: the identities of the servers that are, or were, behind its list.
        voting: those of them that would vote, by their incarnation records, or have been there for so long
            that others which are heard of cannot be those before them.
        heard: what its nodes have heard of other clients.
        since_ms: since when each server has been used, as far as is known.
        quorum: the size of a majority.
        life_ms: how long a lock of a client lives at most after it was heard of.
        alive_ms: for how long a server counts as in use by a client that has told of it.
    """
    own, candidates = set(listed), set(voting)
    known: dict[bytes, Member] = {}
    for member in heard:
        before = known.get(member.identity)
        if member.age_ms < life_ms and (before is None or member.age_ms < before.age_ms):
            known[member.identity] = member
    foreign = {identity: member for identity, member in known.items() if identity not in own}
    # Those that had a vote, and maybe for a lock that is alive; also of this client's list, where it does not
    # reach them.
    used = {identity for identity in known if since_ms.get(identity, NOT_USED) < NOT_USED}
    every = candidates | used
    # Any two majorities of so many servers share one: whichever the lists are, they exclude each other.
    first, late = every, list[bytes]()
    if len(every) >= 2 * quorum:
        ranked = sorted(every, key=lambda one: _rank(one, since_ms.get(one, NOT_USED), one in foreign))
        first = set(ranked[: 2 * quorum - 1])
        late = sorted(candidates - first)
    rivals = sorted((known[one] for one in first - candidates), key=lambda member: member.age_ms)
    strangers = [member for member in rivals if member.identity in foreign]
    others = dict.fromkeys(late, (strangers or rivals)[0]) if late else {}
    # Not for one that was in a place of this list a moment ago: it was restarted or replaced.  And a shorter
    # quarantine may end while the last words about such a server are on their way.
    disputed = bool(late) and any(member.age_ms < alive_ms <= life_ms / 2 for member in strangers)
    alive = tuple(member for member in foreign.values() if member.age_ms < alive_ms)
    return Membership(others, alive if len(candidates) + len(alive) >= 2 * quorum else (), disputed)
