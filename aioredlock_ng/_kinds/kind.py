"""What a lock kind is: what it says of itself, and what it answers when it is asked.

It says with which kinds it shares a name, which scripts are asked, how their answers are read, and how its
key looks from outside.  All else is the same for every kind: `primitive` puts the commands together, rounds
carry them, holdings keep what was won, nodes repeat what was not acknowledged.  None of them asks which kind
it is.

A new kind is one module beside `mutex`, and:

- its scripts, three at most: an acquire, a release, and a part that answers for `raise.lua`, `extend.lua` and
  `repair.lua`; their place is `_scripts`, whose `ALL` is what nodes are told in advance;
- a place in `KINDS`, so that what is found under a key is read;
- each mark in `beside` is one of `MARKS` in `_core.keyspace`, or a lock's name could be such a key, and a
  node that is taken back would wait for it as for a lock that may still live (R12a);
- what users call: a method of `LockManager`, which gives the kind to `Primitives.over`;
- a rule in ``RULES.md``, with its tests, and a proof of its fences where several may hold at once.  That of
  `_core.fencing` needs a single holder, which alone raises the counter, and a majority on which the counter
  *equals* the fence.  With several it has to be said again which of them may raise it, how far, and what a
  certificate is; and a search has to try it, as ``tests/simulation/test_fence_search.py`` does for this one.
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
    """One of a kind's scripts, what it is given, and its answers."""

    script: Script | None
    """None is the Redlock page's ``SET key owner NX PX ttl``."""
    fits: Callable[[object], bool]
    """Whether something could be its answer at all; what is not shows that replies and requests are out of
    step (R15)."""
    read: Callable[[Reply], Answer]
    """Turns an answer that fits, or a silence, into a vote."""
    args: tuple[bytes, ...] = ()
    """The kind's own arguments; they stand behind those that every kind's script is given."""
    marks: bool = True
    """Whether it is given the keys that the kind keeps beside the locks."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScripts:
    """A kind's scripts for several locks at once (R42); to each lock they answer as those for one name do."""

    acquire: Script
    release: Script
    extend: Script


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A holder that a node has under a key."""

    owner: bytes = field(repr=False)
    """What proves the key to be the holder's: a secret, to be compared and not to be shown."""
    label: str | None = None
    """What the holder calls itself; None when the key is another program's."""
    since: float | None = None
    """When it asked for the lock, in Unix seconds by its own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until it is one no more; None without expiry."""
    reads: bool = False
    """Whether others may hold the name beside it."""
    letter: bytes | None = None
    """Which kind it asked for (`Kind.letter`); None when that is unknown."""
    slot: int | None = None
    """Which slot of a semaphore it has; None of any other kind."""


Mode: TypeAlias = Literal["read", "write"]
"""What a lease of a read-write lock may do."""

ReadKey: TypeAlias = Callable[[object, int], tuple[Holder, ...] | None]
"""Reads what a node has under a key, and the milliseconds that the key has left (-1: no expiry).

The holders, one or more; None when this is no key of the kind.
"""


SeatOf: TypeAlias = Callable[[Callable[[], Seat], Callable[[], bytes]], Seat]
"""Returns the seat of a call that waits, from what gives its process's seat, and a new random name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A lock kind; a kind is equal to itself alone.

    What is said here is true of a mutex.  Another kind says what is different in its own file, by fields or
    by methods of a subclass.
    """

    name: str
    """What it is called in messages: ``"mutex"``."""
    noun: str
    """What a lock of it is called in a sentence: ``"mutex"``, ``"read lock"``."""
    letter: bytes = b""
    """By which owner values tell people of which kind they are: one of a to z, of a mutex nothing."""
    mode: Mode | None = None
    """What a lease of it says that it may do; None where there is only one way to hold the name."""
    permits: int = 0
    """How many may hold a name at once, each a slot of its own (R24); 0 of kinds without slots."""
    weaker: Kind | None = None
    """What a lock of it can become without a moment between (R23)."""

    # -- who else may have the name --------------------------------------------------------------

    shares_with: frozenset[str] = frozenset()
    """The names of the kinds that may hold a name at the same time as this one, if these say so, too; in
    doubt nodes decide."""
    passes_on: bool = True
    """Whether tasks of one process may hand it over without notifying other processes (R13, R43)."""
    windows: bool = True
    """Whether a process that has had the name for long lets others ask first (R13): where nodes do not see to
    that (R22)."""
    claims: bool = False
    """Whether a call that waits keeps others from the name (R22)."""
    together: bool = False
    """Whether what one call that waits gets, the others may get, too."""
    seat: SeatOf | None = None
    """Makes the seat of a call that may wait (R22); None where calls leave no mark at the nodes."""
    unheard: Answer | None = None
    """What a raise counts a node for that has not answered the acquire yet.

    None: what it answers to the raise; for a certificate needs nodes that stand *at* the fence.  Where
    several hold at once, it may have granted above it, and stand there (R21).
    """

    # -- what nodes are asked --------------------------------------------------------------------

    acquire: Operation
    """All names free → all ours for a ttl, with a fence; else nothing.  Answers `[1, fence, µs, …]` when
    granted, `[0, wait in ms, µs, …]` when refused, `[-1, 0, µs, …]` without a vote."""
    acquire_plain: Operation
    """The same without a fence."""
    acquire_one_plain: Operation
    """The same, without a fence, for a single name."""
    raise_: Operation
    """All names ours → their counters at a fence, unless they are above it."""
    extend: Operation
    """All names ours → each lives at least a ttl more; else nothing.  Never creates, never shortens (R8)."""
    repair: Operation
    """Every name missing or ours → all ours for at least a ttl (R9)."""
    release: Operation
    """Delete what is ours; or, when it `stays`, let it end after so long (R34).

    Answers `[keys deleted, wait in ms, how many listen]`; where other keys are there, also whether another
    program wrote one of them, and what the holder of one calls itself, if it says so.  For each key that it
    deletes it publishes a notice, how many it is for, on the channel of the key's own name; unless it is
    quiet, since a task of this process has the names next, and to wake others would be for nothing (R13).
    What stays is not announced, and counts as deleted.
    """
    batches: BatchScripts | None = None
    """None where each lock is asked for by scripts of its own."""
    no_slot: tuple[bytes, ...] = ()
    """Which slot is named, of a kind that has slots, by what has not won one."""
    beside: tuple[str, ...] = ()
    """Marks of further keys that it keeps beside each lock's (`keyspace.mark_key`)."""
    counter: str = COUNTER
    """The mark of its counters."""
    key_types: frozenset[bytes] = frozenset({b"string", b"zset"})
    """As TYPE has it, what may be under a lock's key: of this kind, or of one that it excludes (R19)."""
    counter_type: bytes = b"string"
    """The type of its counters."""
    read_key: ReadKey

    def conflicts(self, other: Kind) -> bool:
        """Whether a request of either kind has to wait while one of the other has the name."""
        return other.name not in self.shares_with or self.name not in other.shares_with

    def full(self, holders: int) -> bool:
        """Whether this number of holders leaves no room for another one."""
        return holders > 0

    def admits(self, contenders: int, holders: int) -> bool:
        """Whether a task may ask beside other tasks of its process that share the name with its kind."""
        # Of those that share a name one asks first; when it has won, the others ask, all at once (R22).
        return holders > 0 or not contenders

    def channels(self, keys: tuple[bytes, ...], beside: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return where those that wait hear of releases: the channels of these keys."""
        return keys

    def channel_of(self, seat: Seat) -> bytes:
        """Return the channel on which one that waits is told by its seat (R30); empty where none is."""
        return b""

    def acquire_words(self, seat: Seat, named: int | None, chance: Callable[[], float]) -> tuple[bytes, ...]:
        """Return what an acquire says besides: of the call's seat, or where to look for a slot.

        `named` is the slot that is said to be free, or `slots.ANY`; None at a first try.
        """
        return (seat.name,) if self.seat is not None else ()

    def release_words(self, seat: Seat) -> tuple[bytes, ...]:
        """Return what a release says besides: which mark it takes away."""
        return (seat.name,) if seat.name else ()

    def seat_of_try(self, seat: Seat) -> Seat:
        """Return which seat the release of a refused try names; its call waits on."""
        return NO_SEAT
