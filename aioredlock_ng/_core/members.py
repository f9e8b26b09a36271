"""Which servers are the members of a quorum: lists of nodes that disagree are noticed (A4, R12c).

Clients with the lists a, b, x and a, b, y do not exclude each other: x and b may grant a lock to one of them,
and a and y the same lock to the other.  So with each greeting a client says which servers it uses, or has
used a moment ago, and every node keeps that for as long as a lock of such a client can live.  A server that
no client has used so far gets no vote where, with it, two majorities need not meet.

Two servers of one place follow each other, by a restart or a failover, and are never in reach at once.  One
that others reach while a client reaches all of its own is in another list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from .quarantine import moment, shown_label

USED: Final = b"u"
"""Of a server: it has a vote, in a majority of a client's list."""

WAITS: Final = b"w"
"""It is in the list of a client that runs, and has no vote so far."""

NEW: Final = b"n"
"""It is in the list of a client that starts, or is refused."""

COMPARE: Final = (
    "give all clients the same nodes: compare their lists "
    "(docs/operate/operating.md#changing-the-list-of-nodes says how to change them)"
)
"""The advice on lists that disagree."""

COMPARE_FIRST: Final = f"if no server was replaced, {COMPARE}"
"""The advice where clients use another server in a node's place: `init` would give both a vote."""

_RUN_ID: Final = 40

_LINE: Final = re.compile(rb"(\d{1,17}):(\S{1,200}) ([uwn]) (\d{1,17}) (\d{1,17}) (\d{1,17}) ([^\n]*)\n")


@final
class Member(NamedTuple):
    """A server that some client lists; moments are by the clock of the client that has heard of it."""

    identity: bytes
    state: bytes  # `USED`, `WAITS` or `NEW`
    there_since: float  # since when it has been there, at the latest
    answered_at: float  # when it answered a client last, at the earliest
    told_since: float  # when a client named it to a node first
    since_ms: int  # the same in Unix milliseconds, by the node's clock
    label: bytes  # the holder label of that client

    def beside(self, there_since: float, answered_at: float, seconds: float) -> bool:
        """Whether it and another server were there together for longer than `seconds`."""
        both = min(self.answered_at, answered_at) - max(self.there_since, there_since)
        return both > seconds

    def merged(self, other: Member) -> Member:
        """Merge the lines of two nodes about it, or two lines of one node."""
        last = max(self, other, key=lambda one: one.answered_at)
        there, told = min(self.there_since, other.there_since), min(self.told_since, other.told_since)
        return last._replace(there_since=there, told_since=told, since_ms=min(self.since_ms, other.since_ms))


def read_members(lines: bytes, *, now_ms: int, asked_at: float, size: int) -> tuple[Member, ...]:
    """Read a node's answer, as far as it is of clients with `size` nodes.

    The node's time was `now_ms` when it answered, and not before `asked_at`.
    """
    found = []
    for nodes, identity, state, *moments, label in _LINE.findall(lines):
        there, told, answered = (asked_at - max(0, now_ms - int(at_ms)) / 1000 for at_ms in moments)
        if int(nodes) == size:
            found.append(Member(identity, state, there, answered, told, int(moments[1]), label))
    return tuple(found)


def server_of(member: Member) -> str:
    """Return a server in words: which one, since when, and which client says so."""
    run_id = shown_label(member.identity[:_RUN_ID])
    label = shown_label(member.label)
    since = f"used since {moment(member.since_ms)}" if member.state == USED else "not used so far"
    return f"the one with run_id {run_id} ({since}, says client {label})"


def not_in_list(server: str) -> str:
    """Say that a server is in another client's list and not in this one; see `COMPARE`."""
    return f"another client's list of nodes has a server that this list lacks, {server}"


@final
@dataclass(frozen=True, slots=True)
class Membership:
    """Which of a client's servers may not vote, and why."""

    others: Mapping[bytes, Member] = field(default_factory=dict)
    """For each of them: a server that others use, or have used a moment ago."""
    strangers: tuple[Member, ...] = ()
    """The servers of other clients that this client's list lacks: the lists of nodes disagree."""
    disputed: bool = False
    """Whether this client starts beside others that use another list: it is refused."""

    @property
    def gist(self) -> tuple[object, ...]:
        """The part of it that concerns other nodes when it changes."""
        return self.others.keys(), self.disputed, {one.identity for one in self.strangers}

    def reason(self, server: bytes) -> str:
        """Say why a server may not vote; empty if it may."""
        other = self.others.get(server)
        if other is None:
            return ""
        if self.disputed:
            return (
                f"other clients use another server in its place, {server_of(other)}: their list of nodes is "
                "another one"
            )
        return (
            f"clients used another server a moment ago, {server_of(other)}, and not this one: it was "
            "replaced, or their list of nodes is another one"
        )


def late(used: Collection[bytes], voting: Collection[bytes], *, size: int, quorum: int) -> set[bytes]:
    """Return the servers of a list that may not vote beside those that are used.

    Any two majorities of fewer than 2Q servers share one, so clients exclude each other whatever their lists.
    A node that is not reached, or has lost its memory, may know of another server: it counts as one more.
    """
    hidden = size - len(voting)
    every = set(used).union(voting)
    return set() if len(every) + hidden < 2 * quorum else set(voting).difference(used)


def strangers(
    others: Iterable[Member], own: Collection[tuple[float, float]], *, places: int, seconds: float
) -> list[Member]:
    """Return the servers of others that cannot be, or have been, in a place of this list.

    Args:
        others: the servers that other clients have reported.
        own: the servers that are reached: since when each has been there, and when it answered last.
        places: how many nodes of the list are not reached: in each may be one of those servers.
        seconds: two servers that follow each other are never there together for longer than this.
    """
    foreign = [one for one in others if all(one.beside(*mine, seconds) for mine in own)]
    # As many as there were at once: one place may have had several.
    at_once = [
        {one.identity for one in foreign if one.there_since <= other.there_since
         and one.beside(other.there_since, other.answered_at, seconds)}
        for other in foreign
    ]  # fmt: skip
    return foreign if max(map(len, at_once), default=0) > places else []
