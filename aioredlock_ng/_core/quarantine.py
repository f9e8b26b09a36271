"""The incarnation record: may this node vote, and from when (R12).

A node that has lost its data has forgotten locks that are held; if it voted, two clients could hold one
lock.  The Redlock page's answer is to keep a restarted node out for the longest ttl; here the clients
themselves see to that.  Under ``prefix + "{meta}"`` every node keeps one key without expiry, the *record*.
(Redis Sentinel, the failover service, has but the name in common with it: see `_node.redis_sentinel`.)  It
reads::

    format : identity : floor : ready : N : quarantine : claim

- *identity*: the server's ``run_id`` and ``master_replid`` when it was written.  With another run_id the
  process was restarted; with another replid its data came from elsewhere.  "-" when INFO is denied.
- *floor*: no fence may be below it (`fencing`).
- *ready*: until then, in Unix milliseconds by the node's clock, the node has no vote.  0 when an operator
  has stated that no lock could be alive.
- *N*: how many nodes the lock is configured over; clients with another number have no business here (A4).
- *quarantine*: in milliseconds, the longest that any client asked for; at least the longest ttl.
- *claim*: since when the node belongs to this quorum, whether by an `init` or by a client's first use, and
  the holder label of that client (`Claim`).

A client *greets* a node when it connects and with every heartbeat: the node compares its record with its
present identity, and writes a new one when it is missing or another server's.  A record that lets the
client vote is the *expected record* of this node.  It goes along with every command that counts as a
vote, and the node grants only what comes with exactly the record that it has.  So ``FLUSHALL``, a restart
with old data, and another client's quarantine are noticed by the first command that could be fooled by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, final

FORMAT: Final = b"1"
"""The version of the incarnation record's format that this package writes."""

UNKNOWN_IDENTITY: Final = b"-"
"""Stands for the identity of a server that does not tell it."""

INCARNATION_CHANGED: Final = "the node's incarnation record has changed: it may have lost its data"
"""Why a node does not grant what comes with another incarnation record than it has."""

_FIELDS: Final = 6
"""Those that mean the same in all formats."""

MARGIN_FACTOR: Final = 1.01
"""The quarantine is counted by the node's clock: one percent more pays for a fast one (A1)."""

MARGIN_MS: Final = 10

TAKING_BACK_MS: Final = 2000
"""For so long a node of another quorum that was emptied is left to that one, whose clients claim it again."""

BY_INIT: Final = b"init"
"""An operator's statement: no client takes such a node away."""

BY_USE: Final = b"use"
"""A client found the node without an incarnation record, and used it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MAX_LABEL: Final = 200


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which quorum a node belongs to, since when, and by which client (R12a).

    Every incarnation record that the clients of a quorum write has the same claim.  It ranks two quorums of
    different size.  Two of one size share the older claim; their members tell them apart (R12c).
    """

    born_ms: int = 0
    """When that was, in Unix milliseconds by the clock of one of its nodes."""
    how: bytes = BY_USE
    label: bytes = b""
    """The holder label of the client that made it."""

    def __bytes__(self) -> bytes:
        return b"%d:%b:%b" % (self.born_ms, self.how, self.label)

    def __str__(self) -> str:
        how = "initialised by `init` of" if self.how == BY_INIT else "first used by"
        return f"{how} {shown_label(self.label)} at {moment(self.born_ms)}"

    def outranks(self, other: Claim) -> bool:
        """Whether a quorum with this claim may take a node that a quorum with the `other` one has claimed.

        Never from an `init`.  Else `init` goes before use, and the older before the younger.  A node that
        was taken back has the claim of the quorum that took it: no two take it from each other for ever.
        """
        return other.how != BY_INIT and self.rank < other.rank

    @property
    def rank(self) -> tuple[bool, int]:
        """The less, the higher."""
        return self.how != BY_INIT, self.born_ms


NO_CLAIM: Final = Claim()


def read_claim(value: bytes) -> Claim | None:
    """Read a claim; None when it is none."""
    born, _, rest = value.partition(b":")
    how, separator, label = rest.partition(b":")
    if not born.isdigit() or not how.isalpha() or not separator:
        return None
    return Claim(born_ms=int(born), how=how, label=label)


def shown_label(label: bytes) -> str:
    """Return a client's label as people read it."""
    return ascii(label.decode(errors="replace")[:_MAX_LABEL])[1:-1] or "an unknown client"


def moment(ms: int) -> str:
    """Return a moment of Unix time as people read it, in UTC."""
    try:
        return f"{_EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:  # after the year 9999
        return "an unknown time"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """The content of a node's incarnation record."""

    identity: bytes
    floor: int
    ready_ms: int
    size: int
    quarantine_ms: int
    claim: Claim = field(default_factory=Claim)

    def __bytes__(self) -> bytes:
        numbers = (self.floor, self.ready_ms, self.size, self.quarantine_ms)
        words = (FORMAT, self.identity, *(b"%d" % number for number in numbers), bytes(self.claim))
        return b":".join(words)


def parse(value: bytes) -> Incarnation | None:
    """Read an incarnation record of our format; None for any other."""
    parts = value.split(b":", _FIELDS)
    if len(parts) <= _FIELDS or parts[0] != FORMAT:
        return None
    known, claim = parse_any(value), read_claim(parts[_FIELDS])
    return None if known is None or claim is None else replace(known, claim=claim)


def parse_any(value: bytes) -> Incarnation | None:
    """Read a record of whatever format: the first six fields mean the same in all; None when it is none."""
    parts = value.split(b":")[:_FIELDS]
    if len(parts) < _FIELDS or not all(part.isdigit() for part in parts[2:]):
        return None
    floor, ready_ms, size, quarantine_ms = map(int, parts[2:])
    return Incarnation(
        identity=parts[1], floor=floor, ready_ms=ready_ms, size=size, quarantine_ms=quarantine_ms
    )


def wait_ms(quarantine_ms: int) -> int:
    """Return how long a node keeps still by its own clock, so that the quarantine has passed by any."""
    return math.ceil(quarantine_ms * MARGIN_FACTOR) + MARGIN_MS if quarantine_ms else 0


# -- the client's part -----------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Whether a node may vote for a client: what its answer to a greeting means."""

    expected: bytes = b""
    """The incarnation record that lets it vote.  No node's is empty: with an empty one nothing is granted."""
    floor: int = 0
    """The floor in that record."""
    reason: str = ""
    """Why it has none, in words."""
    wait: float | None = None
    """Seconds until it may vote; None when it may vote now, or when waiting does not help."""
    doubt: str = ""
    """Why a node that waits could not prove that it has forgotten nothing (R12b); empty when unknown."""
    in_conflict: bool = False
    """Whether the node belongs to a quorum of another size (A4)."""
    replaces: bool = False
    """Whether other clients use another server in its place, or did a moment ago (R12c)."""
    quarantine_ms: int = 0
    """The quarantine in force, which may be longer than our own."""
    unknown_format: bool = False
    """Whether another version wrote the record: it counts, as far as it can be read, and stays."""


def eligibility(
    incarnation: bytes,
    *,
    identity: bytes = UNKNOWN_IDENTITY,
    now_us: int,
    role: str,
    size: int,
    doubt: str = "",
) -> Eligibility:
    """Say whether the node that answered this to a greeting may vote for a client with `size` nodes.

    `doubt` is why a node that waits could not be spared that (R12b).

    Without an incarnation record, or with another server's, it was greeted by a client that only reads.
    """
    if role not in ("", "master"):
        return Eligibility(reason=f"the server is a {role}, not a master")
    if not incarnation:
        return Eligibility(
            reason="no incarnation record: not used so far, restarted without data, or flushed"
        )
    found = _eligible_by(incarnation, identity=identity, now_ms=now_us // 1000, size=size)
    if doubt and found.wait is not None:
        found = replace(found, reason=f"{found.reason}: {doubt}", doubt=doubt)
    return found if parse(incarnation) else replace(found, unknown_format=True)


def _eligible_by(incarnation: bytes, *, identity: bytes, now_ms: int, size: int) -> Eligibility:
    known = parse_any(incarnation)
    if known is None:
        return Eligibility(
            reason="its incarnation record is unreadable: another version or program wrote it; it is left "
            "as it is"
        )
    if known.size != size:
        nodes = "1 node" if known.size == 1 else f"{known.size} nodes"
        reason = f"it belongs to a quorum of {nodes}, this client has {size}"
        written = parse(incarnation)
        return Eligibility(reason=f"{reason}; {written.claim}" if written else reason, in_conflict=True)
    if UNKNOWN_IDENTITY != identity != known.identity:
        return Eligibility(
            reason="another server's incarnation record: restarted with old data, or failed over"
        )
    left_ms = known.ready_ms - now_ms
    if left_ms > 0:
        wait = left_ms / 1000
        reason = f"restart quarantine: no vote for another {wait:.1f} s"
        return Eligibility(reason=reason, wait=wait, quarantine_ms=known.quarantine_ms)
    return Eligibility(expected=incarnation, floor=known.floor, quarantine_ms=known.quarantine_ms)
