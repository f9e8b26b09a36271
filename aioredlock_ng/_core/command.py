"""The words that lock kinds and nodes have in common: scripts, commands, replies, answers.

A lock kind turns what it wants into `Command` values; a node carries them to its server and hands
each reply to the `Receiver` that waits for it.  Neither knows the other.  Seconds become milliseconds
here and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from .quorum import Vote


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds for the wire, rounded up: a key must not end before its lock does.

    Never below 1: a ttl of 0 would delete the key.
    """
    return max(1, math.ceil(seconds * 1000))


class Purpose(Enum):
    """The purpose of a command; decides what a node may do with it when things go wrong (R15)."""

    ACQUIRE = "acquire"
    RAISE = "raise"
    EXTEND = "extend"
    RELEASE = "release"
    REPAIR = "repair"
    OTHER = "other"
    """Looking and administering: no lock of ours depends on it."""

    @property
    def creates(self) -> bool:
        """Whether the command can bring our key into being, and so must be undone when unanswered."""
        return self is Purpose.ACQUIRE or self is Purpose.REPAIR

    @property
    def needs_vote(self) -> bool:
        """Whether it is pointless on a node that has no vote (R12)."""
        return self is Purpose.ACQUIRE or self is Purpose.RAISE


class Proof(Enum):
    """The way in which a vote proves that the node has not lost its memory (R12)."""

    NONE = "none"
    """It does not: nothing is asked that counts as a vote, or there is no incarnation record."""
    CONDITIONAL = "conditional"
    """The node adds the expected record as the last `PRECONDITION_SIZE` arguments; the script compares."""
    PROBED = "probed"
    """The node reads the incarnation record behind it, in the same write, and compares."""


PRECONDITION_SIZE: Final = 2
"""Arguments of a precondition: the record, and the floor in it."""


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


@final
@dataclass(frozen=True, slots=True)
class Silence:
    """Stands in for a reply that did not come, with the reason in words an operator understands."""

    reason: str
    sent: bool = True
    """False when the command provably never left, so that nothing has to be undone on that node."""


WRONG_TYPE: Final = "WRONGTYPE"
"""The beginning of a server's error when a command for strings meets a key that holds something else."""

Reply: TypeAlias = "bytes | int | list[object] | Silence | None"
"""The server's answer that a node hands to a receiver, or why there is none."""


def deleted_any(reply: Reply) -> bool:
    """Whether a release found something of its owner's: the one reply that all kinds share."""
    return isinstance(reply, list) and isinstance(reply[0], int) and reply[0] > 0


@final
@dataclass(slots=True, eq=False, repr=False)
class Command:
    """One command of one owner, as words; the same object goes to all N nodes.

    `keeps` is how long, in seconds, a key made for this owner can live: a release that was not
    acknowledged is repeated for that long (the release ledger, R5).
    """

    purpose: Purpose
    _: KW_ONLY
    owner: bytes
    fits: Callable[[object], bool]
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...] = ()
    verb: bytes = b""
    """Empty for a script."""
    script: Script | None = None
    keeps: float = 0.0
    proof: Proof = Proof.NONE
    repeated: tuple[bytes, ...] = ()
    """The arguments of a repetition by the ledger, instead of `args`; empty: the same."""
    packed: bytes | None = field(default=None, init=False)
    """The RESP bytes, built once for all nodes, by the first that sends it."""

    def __repr__(self) -> str:
        # No owner value and no arguments: they may end up in a log line.
        name = self.script.name if self.script else self.verb.decode()
        return f"<Command {self.purpose.value} {name} {[ascii(key) for key in self.keys]}>"


class Receiver(Protocol):
    """Waits for the replies to one command, one per node."""

    @property
    def awaited(self) -> bool:
        """Whether the caller still waits; if not, nothing but a release is sent again for this receiver."""

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take the reply of node number `node`.  Must not raise.

        A node calls it once, however late; for a release that it answered by silence once more, should it
        acknowledge that after all.
        """


WRITER_WAITS: Final = "a writer is waiting for it"
"""The reason that keeps a reader out where nothing that is held does (R22)."""


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
    """The value that an inspection found under the key; or the label of the holder that a release found."""
    reached: int = 0
    """The number of listeners to releases, as far as known; -1 when publishing was refused (R13, R33)."""
    foreign: bool = False
    """Whether a release found a key of another program in its way: no notice comes when that goes."""
    before: int = 0
    """Where the counter stood before a writer's acquire (R23)."""
    slot: int = -1
    """Which slot of a semaphore was granted; -1: none (R24)."""
    ticket: int = 0
    """The ticket of a call that was refused and waits in line; 0: none (R28)."""
    ahead: int = 0
    """The number of seats before it."""

    def __repr__(self) -> str:
        # Without what was found: that may be an owner value.
        return f"<Answer {self.vote.value}{self.reason and ': '}{self.reason}>"


GRANTED: Final = Answer(Vote.GRANTED)
"""A grant that comes with nothing else."""

ABOVE_FENCE: Final = Answer(Vote.SILENT, "the node's counter is above the fence")
"""The result of a raise at a node that is beyond it (R10)."""
