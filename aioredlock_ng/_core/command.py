"""The vocabulary the rings share: scripts, commands, replies, primitives.

A lock kind turns what it wants into `Command` values; a node carries them to its server and hands
each reply to the `Sink` that waits for it.  Neither knows the other.  Seconds become milliseconds
here and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from .quorum import Vote


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds for the wire, rounded up: a key must not end before its lock does.

    Never below 1: a ttl of 0 would delete the key.
    """
    return max(1, math.ceil(seconds * 1000))


class Purpose(Enum):
    """What a command is for; decides what a node may do with it when things go wrong (R15)."""

    ACQUIRE = "acquire"
    RAISE = "raise"
    EXTEND = "extend"
    RELEASE = "release"
    TOP_UP = "top-up"
    OTHER = "other"
    """Looking and administering: no lock of ours depends on it."""

    @property
    def creates(self) -> bool:
        """Whether the command can bring our key into being, and so must be undone when unanswered."""
        return self is Purpose.ACQUIRE or self is Purpose.TOP_UP

    @property
    def needs_vote(self) -> bool:
        """Whether it is pointless on a node that has no vote (R12)."""
        return self is Purpose.ACQUIRE or self is Purpose.RAISE


class Proof(Enum):
    """How a vote proves that the node has not lost its memory (R12)."""

    NONE = "none"
    """It does not: nothing is asked that counts as a vote, or there is no sentinel."""
    STAMPED = "stamped"
    """The node adds what it vowed by as the last `STAMP_SIZE` arguments, and the script looks."""
    PROBED = "probed"
    """The node reads the sentinel behind it, in the same write, and compares."""


STAMP_SIZE: Final = 3
"""Arguments of a stamp: the sentinel, the floor in it, and the server's identity or nothing."""


@final
class Script:
    """A Lua script and the digest by which servers know it."""

    __slots__ = ("digest", "name", "source")

    def __init__(self, name: str, source: bytes) -> None:
        self.name = name
        self.source = source
        self.digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()

    def __repr__(self) -> str:
        return f"<Script {self.name} {self.digest.decode()[:8]}>"


TAGS: Final = tuple(b"%03d" % number for number in range(1000))
"""What tells a connection's scripts apart: each is given the next of these as its last argument, and begins
its answer with it.  So a reply that went missing shows in the one behind it (R15), unless a thousand went.

They follow the places of commands on a connection, not owners: an acquire and its release, two extensions, a
release and its repetition from the ledger have different ones, though they have an owner in common."""

MISFIT: Final = object()
"""Stands in for an answer to another request; no command's `fits` is asked about it."""


def untagged(reply: object, tag: bytes) -> object:
    """Return what a script answered behind its tag; `MISFIT` where that is not `tag`, or there is none."""
    if type(reply) is not list or not reply or reply[0] != tag:
        return MISFIT
    del reply[0]
    return reply[0] if len(reply) == 1 else reply


@final
@dataclass(frozen=True, slots=True)
class Silence:
    """Stands in for a reply that did not come, with the reason in words an operator understands."""

    reason: str
    sent: bool = True
    """False when the command provably never left, so that nothing has to be undone on that node."""


Reply: TypeAlias = "bytes | int | list[object] | Silence | None"
"""What a node hands to a sink: the server's answer, or why there is none."""


def deleted_any(reply: Reply) -> bool:
    """Whether a release found something of its owner's: the one reply that all kinds share."""
    return isinstance(reply, list) and isinstance(reply[0], int) and reply[0] > 0


@final
class Command:
    """One command of one owner, as words; the same object goes to all N nodes.

    `keeps` is how long, in seconds, a key made for this owner can live: a release that was not
    acknowledged is repeated for that long (the release ledger, R5).
    """

    __slots__ = ("args", "fits", "keeps", "keys", "owner", "packed", "proof", "purpose", "script", "verb")

    def __init__(
        self,
        purpose: Purpose,
        *,
        owner: bytes,
        fits: Callable[[object], bool],
        keys: tuple[bytes, ...],
        args: tuple[bytes, ...] = (),
        verb: bytes = b"",
        script: Script | None = None,
        keeps: float = 0.0,
        proof: Proof = Proof.NONE,
    ) -> None:
        assert bool(verb) != (script is not None), "a command is either a verb or a script"
        self.purpose = purpose
        self.owner = owner
        self.fits = fits
        self.keys = keys
        self.args = args
        self.verb = verb
        self.script = script
        self.keeps = keeps
        self.proof = proof
        self.packed: bytes | None = None  # the RESP bytes, built once for all nodes by the node ring

    def __repr__(self) -> str:
        # No owner value and no arguments: they may end up in a log line.
        name = self.script.name if self.script else self.verb.decode()
        return f"<Command {self.purpose.value} {name} {[ascii(key) for key in self.keys]}>"

    @property
    def words(self) -> tuple[bytes, ...]:
        """The command as it goes over the wire, but for a stamp; a script is named by its digest."""
        return (*head(self.verb, self.script, self.keys), *self.args)

    @property
    def words_in_full(self) -> tuple[bytes, ...]:
        """The same with the script's source, for a server that does not know the digest."""
        if self.script is None:
            return self.words
        return (b"EVAL", self.script.source, b"%d" % len(self.keys), *self.keys, *self.args)


def head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return what a command begins with: all but its arguments."""
    if script is None:
        return (verb, *keys)
    return (b"EVALSHA", script.digest, b"%d" % len(keys), *keys)


class Sink(Protocol):
    """Waits for the replies to one command, one per node."""

    @property
    def pending(self) -> bool:
        """Whether the caller still waits; if not, nothing but a release is sent again for this sink."""

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take the reply of node number `node`.  Must not raise.

        Called once per node; for a release that was silent once more, should the node answer after all.
        """


@final
class Answer(NamedTuple):
    """A reply, read: the vote, and what came with it."""

    vote: Vote
    reason: str = ""
    wait: float | None = None
    """Seconds until the key that stands in the way expires; None when unknown."""
    sent: bool = True
    """As in `Silence`."""
    missing: bool = False
    """The key is gone on this node, and no other holder has it: it can be topped up (R9)."""
    fence: int = 0
    """Where the counter stands after a granted acquire (R10)."""
    time: float = 0.0
    """The node's time of day when it answered to a fenced acquire, in Unix seconds (R14)."""
    found: object = None
    """What an inspection found under the key; or the label of the holder that a release found there."""
    reached: int = 0
    """How many listen to releases, as far as that is known; -1 when publishing was refused (R13, R33)."""
    foreign: bool = False
    """Whether a release found a key of another program in its way: no notice comes when that goes."""

    def __repr__(self) -> str:
        # Without what was found: that may be an owner value.
        return f"<Answer {self.vote.value}{self.reason and ': '}{self.reason}>"


GRANTED: Final = Answer(Vote.GRANTED)
"""A grant that comes with nothing else."""

ABOVE_FENCE: Final = Answer(Vote.SILENT, "the node's counter is above the fence")
"""What a raise comes to at a node that is beyond it (R10)."""


class Primitive(Protocol):
    """A lock kind: what to send for one owner, and how to read the answers.

    `fence` is the lease's, 0 where there is none: nodes that are behind it are raised in passing (R10).
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The names it locks, sorted and without duplicates."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys behind the names."""

    @property
    def fenced(self) -> bool:
        """Whether a win needs a certificate for its fence."""

    def acquire(self, owner: bytes, ttl: float, ballot: int) -> Command:
        """All names free → all set for `ttl` seconds; else nothing."""

    def raise_(self, owner: bytes, fence: int) -> Command:
        """All names ours → their counters at `fence`, unless they are above it."""

    def extend(self, owner: bytes, ttl: float, fence: int) -> Command:
        """All names ours → each lives at least `ttl` seconds more; else nothing.  Never creates."""

    def top_up(self, owner: bytes, ttl: float, fence: int) -> Command:
        """Every name missing or ours → all ours for at least `ttl` seconds (R9)."""

    def release(self, owner: bytes, keeps: float, fence: int, *, quiet: bool, stays: float) -> Command:
        """Delete what is ours; or, when `stays` is not 0, let it end in so many seconds (R34).

        Every kind's release answers ``[keys deleted, wait in ms, how many listen]``, and what the holder
        of a key in the way calls itself, if it says so.  For each key that
        it deletes it publishes a notice, how many it is for, on the channel of the key's own name, which
        wakes the waiters of other processes; unless it is `quiet`, since a task of this process has
        the names next and their waking would be for nothing (R13).  What stays is not announced, and counts
        as deleted.
        """

    def read_acquire(self, reply: Reply) -> Answer:
        """Read the answer to `acquire`."""

    def read_raise(self, reply: Reply) -> Answer:
        """Read the answer to `raise_`: GRANTED where all is ours and stands at the fence."""

    def read_extend(self, reply: Reply) -> Answer:
        """Read the answer to `extend`."""

    def read_release(self, reply: Reply) -> Answer:
        """Read the answer to `release`: GRANTED if something of ours was there, REFUSED if not."""
