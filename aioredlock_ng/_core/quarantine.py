"""The sentinel: may this node vote, and from when (R12).

A node that has lost its data has forgotten locks that are held; if it voted, two clients could hold one
lock.  The page's answer is to keep a restarted node out for the longest ttl; here the clients themselves see
to that.  Under ``prefix + "{meta}"`` every node keeps one key without expiry, the *sentinel*::

    format : identity : floor : ready : N : quarantine

- *identity*: the server's ``run_id`` and ``master_replid`` when it was written.  With another run_id the
  process was restarted; with another replid its data came from elsewhere.  "-" when nobody may ask.
- *floor*: no fence may be below it (`fencing`).
- *ready*: until then, in Unix milliseconds by the node's clock, the node has no vote.  0 when somebody has
  stated that no lock could be alive.
- *N*: how many nodes the lock is configured over; clients with another number have no business here (A4).
- *quarantine*: in milliseconds, the longest that any client asked for; at least the longest ttl.

A client *greets* a node when it connects and with every heartbeat: the node compares its sentinel with its
present identity, and writes a new one when it is missing or another server's.  A sentinel that lets the
client vote is the client's *vow* on this node.  It goes along with every command that counts as a vote, and
the node grants only what comes with exactly the sentinel that it has.  So ``FLUSHALL``, a restart with old
data, and another client's quarantine are noticed by the first command that could be fooled by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, final

from .fencing import floor_at

FORMAT: Final = b"1"
"""The version of the sentinel's format that this package writes."""

UNKNOWN_IDENTITY: Final = b"-"
"""Stands for the identity of a server that does not tell it."""

SENTINEL_CHANGED: Final = "the node's sentinel has changed: it may have lost its memory"
"""Why a node does not grant what comes with another sentinel than it has."""

_FIELDS: Final = 6

MARGIN_FACTOR: Final = 1.01
"""The quarantine is counted by the node's clock: one percent more pays for a fast one (A1)."""

MARGIN_MS: Final = 10


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """What a node's sentinel says."""

    identity: bytes
    floor: int
    ready_ms: int
    size: int
    quarantine_ms: int

    def __bytes__(self) -> bytes:
        numbers = (self.floor, self.ready_ms, self.size, self.quarantine_ms)
        return b":".join((FORMAT, self.identity, *(b"%d" % number for number in numbers)))


def parse(value: bytes) -> Sentinel | None:
    """Read a sentinel of our format; None for any other."""
    ours = value.startswith(FORMAT + b":") and value.count(b":") == _FIELDS - 1
    return parse_any(value) if ours else None


def parse_any(value: bytes) -> Sentinel | None:
    """Read a sentinel of whatever format: the first six fields mean the same in all; None when it is none."""
    parts = value.split(b":")[:_FIELDS]
    if len(parts) < _FIELDS or not all(part.isdigit() for part in parts[2:]):
        return None
    floor, ready_ms, size, quarantine_ms = map(int, parts[2:])
    return Sentinel(identity=parts[1], floor=floor, ready_ms=ready_ms, size=size, quarantine_ms=quarantine_ms)


def wait_ms(quarantine_ms: int) -> int:
    """Return how long a node keeps still by its own clock, so that the quarantine has passed by any."""
    return math.ceil(quarantine_ms * MARGIN_FACTOR) + MARGIN_MS if quarantine_ms else 0


# -- the node's part: what greet.lua and init.lua do -----------------------------------------------


def greeted(
    stored: bytes | None,
    *,
    identity: bytes,
    now_us: int,
    size: int,
    quarantine_ms: int,
    push: bytes = b"",
    push_floor: int = 0,
) -> bytes:
    """Return the sentinel after a greeting by a client with `size` nodes and this quarantine.

    `push` is the sentinel whose wait begins anew, if it is still there: the node's clock has jumped ahead
    (R14).  That ended counters, too, and the clock may be back by now, where `start` is below what they were:
    `push_floor` lies above that, by the clock as it was before.
    """
    now_ms = now_us // 1000
    if stored is None:
        ready_ms = now_ms + wait_ms(quarantine_ms)
        return _written(identity, floor_at(now_us), ready_ms, size, quarantine_ms)
    known = parse(stored)
    if known is None or known.size != size:
        return stored
    longest_ms = max(quarantine_ms, known.quarantine_ms)
    anew_ms = now_ms + wait_ms(longest_ms)
    if identity not in (UNKNOWN_IDENTITY, known.identity):
        return _written(identity, max(floor_at(now_us), known.floor), anew_ms, size, longest_ms)
    floor, ready_ms = known.floor, known.ready_ms
    if stored == push:
        # No further than this clock allows: else fences would fall after the next loss.
        floor, ready_ms = max(floor, min(push_floor, floor_at(now_us))), anew_ms
    elif longest_ms > known.quarantine_ms and ready_ms:
        ready_ms += wait_ms(longest_ms) - wait_ms(known.quarantine_ms)
    if ready_ms > anew_ms:  # the clock went back since, and counters may have ended while it was ahead
        floor, ready_ms = max(floor_at(now_us), floor), anew_ms
    return bytes(replace(known, floor=floor, ready_ms=ready_ms, quarantine_ms=longest_ms))


def initialised(
    stored: bytes | None, *, identity: bytes, now_us: int, size: int, quarantine_ms: int, floor: int
) -> bytes:
    """Return the sentinel of a node of which somebody states that no lock can be alive.

    It is done twice: with a `floor` of 0 each node chooses the least floor that lies above all its fences;
    then all of them lift theirs to the greatest of these, so that they agree at once.  A node lifts its floor
    no further than its own clock allows: after the next loss of its data its fences would fall (`fencing`).
    """
    known = None if stored is None else parse(stored)
    own = floor_at(now_us)
    if floor:  # nothing is stated any more: locks may have been taken since, and forgotten
        if known is None or (known.identity, known.size) != (identity, size):
            return stored or b""
        return bytes(replace(known, floor=max(known.floor, min(floor, own))))
    if stored is not None and known is None:
        return stored
    # Whoever needs a longer quarantine asks for it again.
    return _written(identity, max(own, known.floor if known else 0), 0, size, quarantine_ms)


def _written(identity: bytes, floor: int, ready_ms: int, size: int, quarantine_ms: int) -> bytes:
    return bytes(
        Sentinel(identity=identity, floor=floor, ready_ms=ready_ms, size=size, quarantine_ms=quarantine_ms)
    )


# -- the client's part -----------------------------------------------------------------------------


@final
class Terms:
    """What one client's sentinels say: how many nodes there are, and how long a quarantine is.

    `key` is where the sentinel lives.  The quarantine only grows: another client's longer one wins, since
    its locks may live longer.
    """

    __slots__ = ("conflicted", "key", "looking", "quarantine_ms", "size")

    def __init__(self, key: bytes, size: int, quarantine_ms: int, *, looking: bool = False) -> None:
        self.key = key
        self.size = size
        self.quarantine_ms = quarantine_ms
        self.conflicted = False
        """Whether a node is another quorum's: who knows that writes no sentinels, either."""
        self.looking = looking
        """Whether it takes no locks, so far: then it writes no sentinels, and may look at any quorum."""

    def adopt(self, quarantine_ms: int) -> bool:
        """Take over a longer quarantine; False when it is none."""
        longer = quarantine_ms > self.quarantine_ms
        self.quarantine_ms = max(self.quarantine_ms, quarantine_ms)
        return longer


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Vow:
    """What a vote is asked for with: the sentinel that was judged good, and the floor in it."""

    sentinel: bytes = b""
    """No node's sentinel is empty: with an empty one nothing is granted."""
    floor: int = 0


NO_VOW: Final = Vow()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the answer to a greeting means for the client."""

    vow: Vow = NO_VOW
    """`NO_VOW` when the node has no vote."""
    reason: str = ""
    """Why it has none, in words."""
    wait: float | None = None
    """Seconds until it may vote; None when waiting does not help."""
    conflict: bool = False
    """Whether the node belongs to a quorum of another size (A4)."""
    quarantine_ms: int = 0
    """The quarantine in force, which may be longer than our own."""
    unknown_format: bool = False
    """Whether a newer version wrote the sentinel: it counts, as far as it can be read, and stays."""


def judge(
    sentinel: bytes, *, identity: bytes = UNKNOWN_IDENTITY, now_us: int, role: str, size: int
) -> Judgement:
    """Say whether the node that answered this to a greeting may vote for a client with `size` nodes.

    Without a sentinel, or with another server's, it is after a greeting by somebody who only looks.
    """
    if role not in ("", "master"):
        return Judgement(reason=f"the server is a {role}, not a master")
    if not sentinel:
        return Judgement(reason="no sentinel: not used yet, restarted empty, or flushed")
    judged = _judge(sentinel, identity=identity, now_ms=now_us // 1000, size=size)
    return judged if parse(sentinel) else replace(judged, unknown_format=True)


def _judge(sentinel: bytes, *, identity: bytes, now_ms: int, size: int) -> Judgement:
    known = parse_any(sentinel)
    if known is None:
        return Judgement(
            reason="its sentinel cannot be read: a newer version's, or something else; it is left as it is"
        )
    if UNKNOWN_IDENTITY != identity != known.identity:
        return Judgement(reason="another server's sentinel: restarted with old data, or failed over")
    if known.size != size:
        reason = f"it belongs to a quorum of {known.size} nodes, here are {size} configured"
        return Judgement(reason=reason, conflict=True)
    left_ms = known.ready_ms - now_ms
    if left_ms > 0:
        wait = left_ms / 1000
        reason = f"restart quarantine: no vote for another {wait:.1f} s"
        return Judgement(reason=reason, wait=wait, quarantine_ms=known.quarantine_ms)
    return Judgement(vow=Vow(sentinel=sentinel, floor=known.floor), quarantine_ms=known.quarantine_ms)
