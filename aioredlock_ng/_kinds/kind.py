"""The interface of a lock kind: its properties, its scripts and the questions that it answers.

A kind defines the kinds that it shares a name with, its scripts, the readers of their answers, and the format
of its key.  All else is the same for every kind: `primitive` puts the commands together, rounds send them,
holdings keep won locks, nodes repeat releases that were not acknowledged.  They ask a kind
only for its properties, except for slots (`_round`).

A new kind is one module beside `mutex`, and:

- its scripts, three at most: an acquire, a release, and a part that answers for `raise.lua`, `extend.lua` and
  `repair.lua`; they belong into `_scripts`, whose `ALL` nodes load in advance;
- an entry in `KINDS`, so that the value of its keys can be read, and the doctor tries it;
- a letter of its own, which owner values carry.  Where several hold its locks at once, its scripts count only
  owners of that letter, as ``parts/slots.lua`` does (R19);
- each mark in `beside` is one of `MARKS` in `_core.keyspace`: otherwise a lock's name could be such a key;
- a method of `LockManager` for users, which gives the kind to `Primitives.for_names`, and a way to it in all
  other places that offer locks: ``tests/unit/test_kinds_offered.py`` lists them, and fails for a missing one;
- a rule in ``RULES.md``, with its tests, and a proof of its fences where several may hold at once.  That of
  `_core.fencing` needs a single holder, which alone raises the counter, and a majority on which the counter
  *equals* the fence.  With several holders the proof must say again which of them may raise it, how far, and
  what a certificate is; and a search has to test it, as ``tests/simulation/test_searches.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from .._core.command import Answer, Reply, Script
from .._core.keyspace import COUNTER
from .._core.seats import NO_SEAT, Seat


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of a kind's scripts, with its arguments and its answers."""

    script: Script | None  # None: the Redlock page's ``SET key owner NX PX ttl``
    fits: Callable[[object], bool]
    """Whether a reply can be its answer at all; one that cannot shows that replies and requests are out of
    step (R15)."""
    read: Callable[[Reply], Answer]  # turns an answer that fits, or a silence, into a vote
    args: tuple[bytes, ...] = ()  # the kind's own arguments; they stand behind those of every kind's script
    marks: bool = True  # whether it gets the keys that the kind keeps beside the locks


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A holder that a node has under a key."""

    owner: bytes = field(repr=False)
    """The proof that the key is the holder's: a secret, to be compared and never shown."""
    label: str | None = None  # the holder's label; None when the key is another program's
    since: float | None = None
    """When it asked for the lock, in Unix seconds by its own clock; None when unknown."""
    ttl: float | None = None  # seconds until its hold ends; None without expiry
    reads: bool = False  # whether others may hold the name beside it
    letter: bytes | None = None
    """The letter of the kind that it asked for (`Kind.letter`); None when that is unknown."""
    slot: int | None = None  # its slot of a semaphore; None for any other kind


Mode: TypeAlias = Literal["read", "write"]
"""The mode of a lease of a read-write lock."""

ReadKey: TypeAlias = Callable[[object, int], tuple[Holder, ...] | None]
"""Reads the value that a node has under a key, and the milliseconds that the key has left (-1: no expiry).

Returns the holders, one or more; None when this is no key of the kind.
"""


SeatOf: TypeAlias = Callable[[Callable[[], Seat], Callable[[], bytes]], Seat]
"""Returns the seat of a call that waits; its arguments return the process's seat, and a new random name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A lock kind; a kind is equal to itself alone.

    The defaults are those of a mutex.  Another kind defines its differences in its own file, by fields or
    by methods of a subclass.
    """

    name: str
    """Its name in messages: ``"mutex"``."""
    noun: str
    """The word for one of its locks in a sentence: ``"mutex"``, ``"read lock"``."""
    letter: bytes = b""
    """Its letter in owner values, which tells the kind: one of a to z, none for a mutex."""
    mode: Mode | None = None
    """The mode of its leases; None where there is only one way to hold the name."""
    permits: int = 0
    """The number of holders that a name may have at once, each with a slot (R24); 0: without slots."""
    weaker: Kind | None = None
    """The kind that a lock of it can become, without a release in between (R23)."""

    # -- who else may have the name --------------------------------------------------------------

    shares_with: frozenset[str] = frozenset()
    """The names of the kinds that may hold a name at the same time as this one, if they list this one, too;
    if in doubt, the nodes decide."""
    passes_on: bool = True
    """Whether tasks of one process may hand it over without notifying other processes (R13, R43)."""
    windows: bool = True
    """Whether a process that has had the name for long lets other processes ask first (R13); False where the
    nodes order the processes (R22)."""
    claims: bool = False
    """Whether a call that waits keeps others from the name (R22)."""
    together: bool = False
    """Whether the other waiting calls may get the lock, too, when one of them gets it."""
    seat: SeatOf | None = None
    """Makes the seat of a call that may wait (R22); None where calls leave no hint at the nodes."""
    unheard: Answer | None = None
    """The vote on a raise of a node that has not answered the acquire.

    None: its answer to the raise, since a certificate needs nodes that stand *at* the fence.  Where several
    hold at once, it may have granted above the fence, and stand there (R21).
    """

    # -- what nodes are asked --------------------------------------------------------------------

    acquire: Operation
    """All names free → all ours for a ttl, with a fence; else nothing.  Answers `[1, fence, µs, …]` when
    granted, `[0, wait in ms, µs, …]` when refused, `[-1, 0, µs, …]` without a vote."""
    acquire_plain: Operation | None = None
    """The same without a fence; None: `acquire` itself."""
    acquire_one_plain: Operation | None = None
    """The same, without a fence, for a single name; None: `acquire` itself."""
    raise_: Operation
    """All names ours → their counters at a fence, unless they are above it."""
    extend: Operation
    """All names ours → each lives at least a ttl more; else nothing.  Never creates, never shortens (R8)."""
    repair: Operation
    """Every name missing or ours → all ours for at least a ttl (R9)."""
    release: Operation
    """Delete what is ours; or, when it `stays`, let it end after so long (R34).

    Answers `[keys deleted, wait in ms, number of listeners]`; where other keys are there, also whether
    another program wrote one of them, and the label of the holder of one, if it has one.  For each key that
    it deletes it publishes a notification with the number of its listeners, on the channel of the key's own
    name; unless a task of this process has the names next, so that it would wake others in vain (R13).  For a
    key that stays nothing is published, and it counts as deleted.
    """
    batched: bool = False
    """Whether several locks, each of one name, go into one command (R42): ``acquire_many.lua`` and its like
    answer for each lock as the scripts for one do."""
    no_slot: tuple[bytes, ...] = ()
    """The argument for the slot before one is won; empty for kinds without slots."""
    beside: tuple[str, ...] = ()
    """Marks of further keys that it keeps beside each lock's (`keyspace.mark_key`)."""
    counter: str = COUNTER
    """The mark of its counters."""
    key_types: frozenset[bytes] = frozenset({b"string", b"zset"})
    """The types that a lock's key may have, of this kind or of one that it excludes (R19)."""
    counter_type: bytes = b"string"
    """The type of its counters."""
    rights: str = ""
    """The rights that it needs beside a mutex's: a node may lack them, and grant other locks."""
    read_key: ReadKey

    def granted(self, fence: int, before: int) -> list[object]:
        """Return the answer to an acquire of a node that grants everything, for tests without nodes.

        `fence` is an even one, `before` the fence of the last holder that was alone (R21).
        """
        return [1, fence, 0]

    def conflicts(self, other: Kind) -> bool:
        """Whether a request of either kind has to wait while one of the other has the name."""
        # In doubt they do: both kinds must list each other.
        return other.name not in self.shares_with or self.name not in other.shares_with

    def full(self, holders: int) -> bool:
        """Whether this number of holders leaves no room for another one."""
        return holders > 0

    def admits(self, contenders: int, holders: int) -> bool:
        """Whether a task may ask beside other tasks of its process that share the name with its kind."""
        # Of the tasks that share a name one asks first; when it has won, the others ask, all at once (R22).
        return holders > 0 or not contenders

    def channels(self, keys: tuple[bytes, ...], beside: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the channels on which waiters are notified of releases: those of these keys."""
        return keys

    def channel_of(self, seat: Seat) -> bytes:
        """Return the channel of a waiter's own seat (R30); empty where seats have none."""
        return b""

    def acquire_words(self, seat: Seat, named: int | None, chance: Callable[[], float]) -> tuple[bytes, ...]:
        """Return the further arguments of an acquire: the call's seat, or the slots to try.

        `named` is the slot that a release has named as free, or `slots.ANY`; None at a first attempt.
        """
        return (seat.name,) if self.seat is not None else ()

    def release_words(self, seat: Seat) -> tuple[bytes, ...]:
        """Return the further arguments of a release: the seat whose waiting flag it removes."""
        return (seat.name,) if seat.name else ()

    def seat_of_try(self, seat: Seat) -> Seat:
        """Return the seat that the release of a refused attempt names, while its call waits on."""
        return NO_SEAT
