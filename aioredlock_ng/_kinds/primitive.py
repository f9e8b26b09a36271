"""A kind over names: builds the commands for one owner, in the same way for every kind.

==========  =========================================================================================
KEYS        n locks; with a fence their n counters; of each mark of the kind n keys; if a vote needs
            proof, the incarnation record
ARGV[1]     owner
acquire     ttl, ballot (0: no fence), how many fences, how long a counter lives unused
raise       fence, how long a counter lives unused
extend      ttl, fence (0: none), how long a counter lives unused; the same for a repair
release     fence (0: none), how long a counter lives unused, ``1`` or empty for a quiet one
then        the kind's own arguments
slots       an acquire: the first slot to try, and how many; other commands: the slot, -1 before a win
seats       an acquire: the seat; a release: the seat of a call that waits no more.  A fair lock: in both
            the seat, its ticket and its life, also where the seat is empty
stays       a release whose keys stay: for how long
last        if a vote needs proof, the precondition; the request id: both are added by the node (R12, R15)
==========  =========================================================================================

All times are in milliseconds.  The Redlock page's ``SET key owner NX PX ttl`` is no script, and has none of
this.
"""

# ruff: noqa: SLF001 (one primitive is made from another)

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Final, final

from .._core.command import Answer, Command, Proof, Purpose, Reply, milliseconds
from .._core.fencing import MAX_BLOCK
from .._core.seats import NO_SEAT, Seat
from .kind import Kind, Operation

MAX_TIMES: Final = 256
"""Different ttls that are kept as text: a manager has a handful of them."""


@lru_cache(MAX_TIMES)
def ms(seconds: float) -> bytes:
    """Return a time as scripts take it."""
    return b"%d" % milliseconds(seconds)


def bulk(word: bytes) -> bytes:
    """Pack one word of a command."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


@lru_cache(MAX_TIMES)
def packed_word(word: bytes) -> bytes:
    """Pack a word that is used again and again."""
    return bulk(word)


@lru_cache(MAX_TIMES)
def _behind_owner(ttl: float) -> bytes:
    """Pack the end of a plain acquire."""
    return b"$2\r\nNX\r\n$2\r\nPX\r\n" + bulk(ms(ttl))


@final
class Primitive:
    """A kind over `names`, which are sorted and unique; `keys` are their keys in that order.

    With `counters`, one per key, it makes fences; they live `fence_ttl` seconds after their last use.  With
    an `incarnation` only nodes vote that have not lost their memory; fences require it.  `beside` are the
    keys that the kind keeps beside the locks, in the order of its marks.

    The `fence` arguments are the lease's fence, 0 without one: nodes that are behind it are raised in
    passing (R10).
    """

    __slots__ = (
        "_acquire",
        "_counters",
        "_fence_ttl_ms",
        "_incarnation",
        "_marks",
        "_slot",
        "batchable",
        "block",
        "fenced",
        "heritable",
        "keys",
        "kind",
        "names",
        "packed_fence_ttl",
        "packed_incarnation",
        "packed_key",
        "packed_pair",
        "slot",
        "weaker",
    )

    def __init__(
        self,
        kind: Kind,
        names: tuple[str, ...],
        keys: tuple[bytes, ...],
        *,
        counters: tuple[bytes, ...] = (),
        beside: tuple[bytes, ...] = (),
        incarnation: bytes | None = None,
        fence_ttl: float = 0.0,
        weaker: Primitive | None = None,
    ) -> None:
        assert not counters or incarnation is not None, "a fence rests on the incarnation record's floor"
        assert len(beside) == len(kind.beside) * len(keys), "one for each mark and name"
        self.kind = kind
        self.names = names
        self.keys = keys
        self.fenced = bool(counters)
        """Whether a win needs a certificate for its fence."""
        self.weaker = weaker
        """The primitive of the kind that this one can become, over the same names."""
        self.slot: int | None = None
        """The slot that was won; None before that, and for kinds without slots."""
        self._slot = kind.no_slot
        self.heritable = len(names) == 1 and kind.passes_on
        """Whether a lock may be handed off between tasks without the nodes: it has a single name (R43)."""
        self.block = MAX_BLOCK if counters and self.heritable else 1
        """The number of fences that an acquire asks for: several where its lock may be handed off."""
        self._counters = counters
        self._marks = beside
        self._incarnation = () if incarnation is None else (incarnation,)
        self._fence_ttl_ms = ms(fence_ttl)
        # Without fences a single name needs no script.
        plain = kind.acquire_one_plain if len(keys) == 1 else kind.acquire_plain
        self._acquire: Operation = plain if plain and not counters else kind.acquire
        self.batchable = len(keys) == 1 and kind.batched
        """Whether its commands go into batches (R42): a single name, of a kind with scripts for them."""
        # The packed parts of batches: only the owner is new in each cycle.
        self.packed_key = bulk(keys[0])
        self.packed_pair = self.packed_key + bulk(counters[0]) if counters else self.packed_key
        self.packed_incarnation = b"" if incarnation is None else packed_word(incarnation)
        self.packed_fence_ttl = packed_word(self._fence_ttl_ms)

    def over(self, name: str, key: bytes) -> Primitive:
        """Return the same over another name, under `key`; this one has a single name, too.

        Most names are used once, and this is done for each: what does not depend on the name is not worked
        out again.
        """
        new = Primitive.__new__(Primitive)
        new.kind, new.fenced, new.slot, new._slot = self.kind, self.fenced, None, self.kind.no_slot
        new.heritable, new.block, new.batchable = self.heritable, self.block, self.batchable
        new._incarnation, new.packed_incarnation = self._incarnation, self.packed_incarnation
        new._fence_ttl_ms, new.packed_fence_ttl = self._fence_ttl_ms, self.packed_fence_ttl
        new._acquire = self._acquire
        new.weaker = None if self.weaker is None else self.weaker.over(name, key)
        new.names, new.keys, new._counters, new._marks = (name,), (key,), (), ()
        new.packed_key = new.packed_pair = b"$%d\r\n%b\r\n" % (len(key), key)
        # All keys beside the lock's end with it, in braces.
        rest = -1 - len(self.keys[0])
        if self.fenced:
            counter = b"%b%b}" % (self._counters[0][:rest], key)
            new._counters = (counter,)
            new.packed_pair += bulk(counter)
        if self._marks:
            new._marks = tuple([b"%b%b}" % (mark[:rest], key) for mark in self._marks])
        return new

    @property
    def channels(self) -> tuple[bytes, ...]:
        """The channels on which waiters are notified of releases."""
        return self.kind.channels(self.keys, self._marks)

    @property
    def read_acquire(self) -> Callable[[Reply], Answer]:
        """The reader of the answer to an acquire."""
        return self._acquire.read

    @property
    def parts(self) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
        """All keys that it uses, by their purpose."""
        return (("lock", self.keys), ("counter", self._counters), ("mark", self._marks))

    def packed_set(self, owner: bytes, ttl: float) -> bytes:
        """Pack the plain acquire of a single name."""
        words = self.packed_key, len(owner), owner, _behind_owner(ttl)
        return b"*6\r\n$3\r\nSET\r\n%b$%d\r\n%b\r\n%b" % words

    def acquire(
        self,
        owner: bytes,
        ttl: float,
        ballot: int = 0,
        block: int = 1,
        *,
        seat: Seat = NO_SEAT,
        named: int | None = None,
        chance: Callable[[], float] = float,
    ) -> Command:
        """Build the acquire; `ballot` is the proposed fence, the first one of a range of `block` fences.

        `seat`, `named` and `chance` are for the kind (`Kind.acquire_words`).
        """
        operation, ttl_ms = self._acquire, ms(ttl)
        # The Redlock page's SET.  It cannot check the incarnation record: a GET follows it (`Proof.PROBED`).
        if operation.script is None:
            return Command(
                Purpose.ACQUIRE,
                owner=owner,
                fits=operation.fits,
                keys=self.keys,
                args=(owner, b"NX", b"PX", ttl_ms),
                verb=b"SET",
                keeps=ttl,
                proof=Proof.PROBED if self._incarnation else Proof.NONE,
            )
        proposed = max(ballot, 1) if self.fenced else 0  # 0 says that there are no fences
        args = (owner, ttl_ms, b"%d" % proposed, b"%d" % block, self._fence_ttl_ms)
        more = self.kind.acquire_words(seat, named, chance)
        return self._script(
            Purpose.ACQUIRE, operation, args, counters=True, conditional=True, keeps=ttl, behind=more
        )

    def raise_(self, owner: bytes, fence: int) -> Command:
        """Build the owner-checked raise (R10)."""
        args = (owner, b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.RAISE, self.kind.raise_, args, counters=True, conditional=True)

    def extend(self, owner: bytes, ttl: float, fence: int = 0) -> Command:
        """Build the owner-checked extension (R8)."""
        args = (owner, ms(ttl), b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.EXTEND, self.kind.extend, args, counters=fence > 0, conditional=True)

    def repair(self, owner: bytes, ttl: float, fence: int = 0) -> Command:
        """Build the command that sets lost keys on a node again (R9)."""
        args = (owner, ms(ttl), b"%d" % fence, self._fence_ttl_ms)
        return self._script(Purpose.REPAIR, self.kind.repair, args, counters=fence > 0, keeps=ttl)

    def release(
        self,
        owner: bytes,
        keeps: float,
        fence: int = 0,
        *,
        quiet: bool = False,
        stays: float = 0.0,
        seat: Seat = NO_SEAT,
    ) -> Command:
        """Build the owner-checked delete; `keeps` as in `Command`.

        A `quiet` one notifies no other process.  If `stays` is not 0, the keys end after that many seconds
        (R34).  With a `seat` it also removes the call's waiting flag, where nodes that refused it have one;
        or it keeps the position in the queue, if the seat has a ticket.
        """
        # No kind has both a seat and an `at_least`.
        stay = (b"%d" % milliseconds(stays),) if stays > 0 else ()
        behind = self._slot + (self.kind.release_words(seat) or stay)
        # Names that stay taken are not announced.
        loud = b"" if quiet or stay else b"1"
        operation, args = self.kind.release, (owner, b"%d" % fence, self._fence_ttl_ms, loud)
        command = self._script(
            Purpose.RELEASE, operation, args, counters=fence > 0, keeps=keeps, behind=behind
        )
        # A fair lock: by the time of a repetition the process's next call may have the seat.
        if again := self.kind.release_words(NO_SEAT):
            command.repeated = (*args, *operation.args, *again)
        return command

    def at(self, slot: int) -> Primitive:
        """Return the primitive whose commands name only the slot that was won."""
        assert self._slot, "a kind with slots"
        won = copy.copy(self)
        won.slot, won._slot = slot, (b"%d" % slot,)
        return won

    def leave_queue(self, seat: Seat) -> Command:
        """Build the removal of the waiting flag or seat of a call that waits no more, and holds nothing."""
        # A release by the seat's name as the owner: it deletes nothing.
        args = (seat.name, b"0", self._fence_ttl_ms, b"1")
        behind = self._slot + self.kind.release_words(seat)
        return self._script(Purpose.OTHER, self.kind.release, args, counters=False, behind=behind)

    def _script(
        self,
        purpose: Purpose,
        operation: Operation,
        args: tuple[bytes, ...],
        *,
        counters: bool,
        conditional: bool = False,
        keeps: float = 0.0,
        behind: tuple[bytes, ...] | None = None,
    ) -> Command:
        keys = self.keys + self._counters if counters else self.keys
        # A fair lock's seats, say, are no business of the mutex's scripts that it shares.
        if operation.marks:
            keys += self._marks
        needs_proof = conditional and self._incarnation
        return Command(
            purpose,
            owner=args[0],
            fits=operation.fits,
            keys=keys + self._incarnation if needs_proof else keys,
            args=args + operation.args + (self._slot if behind is None else behind),
            script=operation.script,
            keeps=keeps,
            proof=Proof.CONDITIONAL if needs_proof else Proof.NONE,
        )
