"""The events of a simulated run, as an observer with the right time saw all of it.

The simulator writes it down; ``checks.py`` says what must be true of it, ``listing.py`` shows it.  All times
are true seconds of the simulation; clients, their tasks and nodes are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["lock", "fair", "read", "write", "permit"]
"""As what a name is wanted and held: by `LockManager.lock`, fair or not, by either way of `rwlock`, or
by `semaphore`."""


def places(names: tuple[str, ...], slot: int | None) -> tuple[str, ...]:
    """Return what a holder has for itself: the names, or of a semaphore one slot (R24)."""
    return names if slot is None else tuple(f"{name}[{slot}]" for name in names)


class Outcome(StrEnum):
    """The outcome of an operation; the words are Jepsen's."""

    OK = "ok"
    """It happened."""
    FAIL = "fail"
    """It certainly did not happen."""
    UNKNOWN = "unknown"
    """Unknown: it was cancelled, its client was killed, or it never returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of a client."""

    client: int
    task: int
    kind: str
    """"acquire", "extend", "downgrade" or "release"; "try" for an acquire that failed after its
    `blocking_timeout`."""
    names: tuple[str, ...]
    began: float
    ended: float | None
    """When it returned, was cancelled, or died with its client; None: the run ended before it did."""
    outcome: Outcome
    note: str = ""
    """Such as the error that it raised."""
    mode: Mode = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One lease, from the acquire that won it to the end of its body.

    A writer that becomes a reader makes two claims, one after the other (R23).
    """

    client: int
    task: int
    names: tuple[str, ...]
    owner: bytes
    fence: int | None
    asked: float
    """When `acquire` was called; of what was handed off, the call that asked the nodes (R43)."""
    since: float
    """When `acquire` had returned: from here on the client believes that it holds the lock."""
    until: float
    """When it ceased to believe so: its release began, its lease was lost or its validity ended."""
    stopped: float
    """When its body really stopped; later than `until`, it has overrun."""
    mode: Mode = "lock"
    unchanged_since: int | None = None
    """The fence of the read lease since which, as a writer learned, no other one came (R23)."""
    slot: int | None = None
    """Which permit of a semaphore it is (R24)."""
    permits: int = 0
    """Of how many, as its client says (R26)."""

    @property
    def alone(self) -> bool:
        """Whether no other may hold the name at the same time."""
        return self.mode != "read"

    @property
    def places(self) -> tuple[str, ...]:
        """The places that it has for itself."""
        return places(self.names, self.slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The change that one command of a client made at the key of one lock on one node, for one holder.

    Of several readers, or slots, under one key each has an expiry of its own.
    """

    at: float
    node: int
    client: int
    command: str
    """The name of its script, or "acquire" for a plain SET."""
    owner: bytes
    """The owner that it was sent for."""
    key: bytes
    before: bytes | None
    """None: there was no key."""
    after: bytes | None
    ttl_before: float | None
    """Seconds; None with a value: it would not have expired."""
    ttl_after: float | None
    shares: bool = False
    """Whether others may be under that key, too: it is a reader's then, or was, or in a slot."""
    slot: int | None = None
    """Which slot of a semaphore it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write to a resource that refuses a fence when it has seen a greater one.

    Or a reader's fence, put down before it reads, which keeps late writers out (R21).
    """

    at: float
    client: int
    name: str
    owner: bytes
    """The owner of the claim it was made under."""
    fence: int
    accepted: bool
    reads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A counter that was read at an earlier moment and is written now, at a resource that checks nothing."""

    at: float
    client: int
    name: str
    read: int
    wrote: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A counter that a reader read when it began, and when it was done."""

    at: float
    client: int
    name: str
    first: int
    then: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """A fault that was injected."""

    at: float
    until: float | None
    """None: it was over at once, such as a restart."""
    node: int | None
    client: int | None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that should not be, in words, and when it was seen."""

    at: float
    what: str


@dataclass(slots=True)
class History:
    """Everything that happened in one run."""

    nodes: int
    clients: int
    operations: list[Operation] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    leaks: list[Remark] = field(default_factory=list)
    """Tasks and keys that were left."""
    complaints: list[Remark] = field(default_factory=list)
    """Something that a process must not meet, and did."""
    ended: float = 0.0
    healed_at: float | None = None
    """Since when no fault is active and a majority of the nodes is up; None: never."""
