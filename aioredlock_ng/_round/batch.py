"""Batches: one command for several locks in one turn of the event loop, the same for every node (R42).

One script for up to `MAX_BATCH` locks costs a server a third of what a script for each lock does.  The locks
of a batch are independent: each is granted or refused on its own, and a key of a wrong type is an error of
its lock only.  Plain acquires use no script.  They remain the Redlock page's ``SET key owner NX PX ttl``, one
behind the other; where votes depend on the incarnation record, it is read once, behind the last one (R12).

A batch stands for the commands of its rounds.  If there is no reply to the batch as a whole (an error, a
connection that ends, a node that cannot take batches), each lock is treated as if it had been asked for on
its own, by the batch's `command` of its round.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, final

from .. import _scripts
from .._core.command import GRANTED, PRECONDITION_SIZE, Answer, Command, Reply, Script, Silence
from .._core.fencing import range_end
from .._core.quarantine import INCARNATION_CHANGED
from .._kinds.answers import (
    NO_VOTE,
    RELEASED,
    fits_batched_release,
    fits_int,
    granted_at,
    read_batched_grant,
    read_batched_release,
    read_extend,
)
from .._kinds.primitive import Primitive, bulk, ms
from .._node.pipe import Fail, Parcel, Question
from .round import Asks, Round, take

MAX_BATCH: Final = 32
"""Most locks in one script: it blocks a server for less than half a millisecond."""

_CHANGED: Final = Silence(INCARNATION_CHANGED)

_SET: Final = b"OK"

_OK: Final = b"+OK\r\n"

_TIME_DIGITS: Final = 16
"""Digits of a node's time of day in microseconds, until the year 2286."""

_TIME: Final = len(b"*3\r\n$3\r\n000\r\n:")
"""Where the node's time stands in the reply to acquires of fewer than eight locks."""

_NOTIFY: Final = bulk(b"1")

_EMPTY: Final = bulk(b"")

_PACKED_KEY: Final = attrgetter("primitive.packed_key")
_PACKED_PAIR: Final = attrgetter("primitive.packed_pair")
_OWNER: Final = attrgetter("owner")
_READ_ACQUIRE: Final = attrgetter("read_acquire")


@lru_cache(2 * MAX_BATCH)
def _begins(script: Script, keys: int, args: int) -> bytes:
    """Pack the beginning of a script's command, up to its keys.

    The arguments that nodes add are counted here: a precondition, if any, and the request id.
    """
    return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b" % (3 + keys + args, script.digest, bulk(b"%d" % keys))


@lru_cache(2 * MAX_BATCH)
def _ones(n: int) -> bytes:
    """Return the reply of a script that answers 1 to `n` locks, with a place for the request id."""
    return b"*%d\r\n$3\r\n%%b\r\n%b" % (n + 1, n * b":1\r\n")


@lru_cache(2 * MAX_BATCH)
def _around_ballot(incarnation: bytes, ttl: float, block: int, fence_ttl: bytes) -> tuple[bytes, bytes]:
    """Pack what stands before and behind the ballot of fenced acquires: the same in nearly all of them."""
    return incarnation + bulk(ms(ttl)), bulk(b"%d" % block) + fence_ttl


@final
class Asked(Round):
    """The operation of one name, which leaves in a batch: with others like it, or alone.

    One class for all operations: where all objects have one type, attributes are read in less time.
    """

    # No keywords, as in all classes of which each cycle makes an object: with them it takes longer.
    def __init__(  # noqa: PLR0917
        self,
        outbox: Asks,
        batch: type[Batch],
        primitive: Primitive,
        owner: bytes,
        ttl: float,
        fence: int = 0,
        block: int = 1,
        quiet: bool = False,  # noqa: FBT001, FBT002
        unsent: Sequence[int] = (),
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> None:
        # As `Round`, inlined: two of these are in every cycle.
        self._outbox = outbox
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.answers = [None] * size
        self.granted, self.waiting, self.callback = 0, (), None
        self.on_answer = on_answer
        self.batch = batch
        """Makes a batch of rounds with equal `terms`."""
        self.primitive = primitive
        self.owner = owner
        self.ttl = ttl
        """The lifetime of the keys in seconds; of a release, the longest that its acquire may have given."""
        self.fence = fence
        """Of an acquire, the first of the proposed range; of an extension, its own; 0 without fencing."""
        self.block = block
        """The length of the range."""
        self.quiet = quiet
        """Whether it is a release that notifies no process."""
        self.unsent = unsent

    def read(self, reply: Reply) -> Answer:
        """Read the reply to its `Batch.command`."""
        return self.batch.reader(self.primitive)(reply)


class Batch(Parcel):
    """The operations of several locks in one turn of the event loop; see `_node.pipe.Parcel`."""

    most = MAX_BATCH
    """Most rounds that it may have."""
    terms: Callable[[Asked], object]
    """Returns the values that all rounds of a batch have in common."""
    reader: Callable[[Primitive], Callable[[Reply], Answer]]
    """Returns the reader of the reply to a `command`."""

    def __init__(self, rounds: Sequence[Asked]) -> None:
        self.rounds = rounds

    @staticmethod
    @abstractmethod
    def command(round_: Asked) -> Command:
        """Return the round's operation as a command for its lock alone."""

    @property
    def packed_in_full(self) -> bytes:
        """As in `Parcel`."""
        assert self.script is not None, "packed"
        short, full = (
            b"$7\r\nEVALSHA\r\n" + bulk(self.script.digest),
            b"$4\r\nEVAL\r\n" + bulk(self.script.source),
        )
        return self.packed.replace(short, full, 1)

    def questions(self, node: int) -> Iterator[Question]:
        """As in `Parcel`."""
        for round_ in self.rounds:
            yield Question(self.command(round_), round_, node)

    @property
    def done(self) -> bool:
        """Whether every node has answered to every round, or was counted as silent."""
        for round_ in self.rounds:  # noqa: SIM110 (a generator would be the slowest part of it)
            if round_.pending:
                return False
        return True

    def time_out(self) -> None:
        """Count the nodes that have not answered as silent, for every round (R1)."""
        for round_ in self.rounds:
            if round_.pending:
                round_.time_out()


def _acquire(round_: Asked) -> Command:
    return round_.primitive.acquire(round_.owner, round_.ttl, round_.fence, round_.block)


@final
class PlainAcquires(Batch):
    """``SET key owner NX PX ttl`` for each lock; where votes need the record, one GET of it at the end."""

    most = sys.maxsize
    terms = attrgetter("batch")
    reader, command = _READ_ACQUIRE, staticmethod(_acquire)

    def __init__(self, rounds: Sequence[Asked]) -> None:
        self.rounds = rounds
        words = [round_.primitive.packed_set(round_.owner, round_.ttl) for round_ in rounds]
        self._oks = len(rounds) * _OK
        incarnation = rounds[0].primitive.packed_incarnation
        self.probed = bool(incarnation)
        if incarnation:
            words.append(b"*2\r\n$3\r\nGET\r\n" + incarnation)
        self.replies = len(words)
        self.packed = b"".join(words)
        self._expected: dict[int, bytes] = {}
        self._got: dict[int, list[Any]] = {}

    def expect(self, node: int, incarnation: bytes) -> None:
        """As in `Parcel`."""
        self._expected[node] = incarnation

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`: all locks were free, and the incarnation record is the expected one."""
        usual = self._oks
        if self.probed:
            usual += bulk(self._expected[node])
        # Some replies have come already, in another piece.
        if node in self._got or not data.startswith(usual, at):
            return 0
        take(self.rounds, node, GRANTED)
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Keep a reply; with the last one, pass all of them to the rounds."""
        got = self._got.setdefault(node, [])
        got.append(reply)
        last = len(got) == self.replies
        # The last reply is the record's.  An OK in its place shows that a reply to a SET is missing.
        if self.probed and last:
            fits = reply != _SET
        # A reply to a SET: taken, not taken, or an error such as a full memory.
        else:
            fits = reply == _SET or reply is None or isinstance(reply, Exception)
        if fits and last:
            del self._got[node]
            self._hand_out(node, got, fail)
        return fits

    def _hand_out(self, node: int, got: list[Any], fail: Fail) -> None:
        # The record has changed: the node has lost its memory since it was asked, and none of its replies
        # counts, not even the OKs (R12).
        if self.probed and (why := self._why_not(node, got.pop())) is not None:
            for round_ in self.rounds:
                round_.on_reply(node, why)
        # Each lock has its own reply.  Example: "a" was free, "b" is taken, and "c" met a full memory.
        else:
            for round_, said in zip(self.rounds, got, strict=True):
                if isinstance(said, Exception):
                    fail(Question(self.command(round_), round_, node), str(said))
                else:
                    round_.on_reply(node, said)

    def _why_not(self, node: int, found: object) -> Silence | None:
        """Return why no vote of this node counts; None when the expected incarnation record was found."""
        if isinstance(found, Exception):
            return Silence(f"its incarnation record could not be read: {found}")
        return None if found == self._expected.get(node) else _CHANGED


class ScriptBatch(Batch):
    """One script for all locks of the batch; its one reply is the request id and an answer for each lock."""

    script: Script
    _fits: Callable[[object], bool]
    """Whether a value could be the answer to one lock."""
    _read: Callable[[Any], Answer]
    """Reads the answer to one lock."""
    _usual: Answer
    """The answer to nearly every lock, a 1."""
    _ones: bytes
    """The reply when every answer is a 1, with a place for the request id."""

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`: every lock was held, and is extended or released now."""
        usual = self._ones % request_id
        if not data.startswith(usual, at):
            return 0
        take(self.rounds, node, self._usual)
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`."""
        # No reply to this script: replies and commands are out of step, and the node is reconnected (R15).
        if type(reply) is not list or not reply or reply[0] != request_id or not self._fit(reply[1:]):
            return False
        self._hand_out(node, reply[1:], self._read, fail)
        return True

    def _fit(self, answers: Sequence[object]) -> bool:
        """Whether there is an answer for each lock, or the text of an error."""
        fits = self._fits
        return len(answers) == len(self.rounds) and all(type(each) is bytes or fits(each) for each in answers)

    def _hand_out(self, node: int, answers: Sequence[Any], read: Callable[[Any], Answer], fail: Fail) -> None:
        """Give each round its own answer."""
        for round_, said in zip(self.rounds, answers, strict=True):
            # An error of this lock only, such as a key of another type: the others keep their answers.
            if type(said) is bytes:
                fail(Question(self.command(round_), round_, node), said.decode(errors="replace"))
            else:
                take((round_,), node, read(said))


@final
class FencedAcquires(ScriptBatch):
    """Acquires with the same ttl, the same ballot and fence ranges of the same length."""

    script = _scripts.ACQUIRE_MANY
    conditional = True
    terms = attrgetter("ttl", "fence", "block")
    reader, command = _READ_ACQUIRE, staticmethod(_acquire)
    _fits = staticmethod(fits_int)

    def __init__(self, rounds: Sequence[Asked]) -> None:
        self.rounds = rounds
        first, n = rounds[0], len(rounds)
        self._proposed = range_end(first.fence, first.block)
        # The usual reply, with places for the request id and the node's time.
        self._granted = b"*%d\r\n$3\r\n%%b\r\n:%%b\r\n%b" % (n + 2, n * (b":%d\r\n" % self._proposed))
        primitive, ballot = first.primitive, b"%d" % first.fence
        before, behind = _around_ballot(
            primitive.packed_incarnation, first.ttl, first.block, primitive.packed_fence_ttl
        )
        begins = _begins(self.script, 2 * n + 1, 4 + n + PRECONDITION_SIZE + 1)
        middle = b"%b$%d\r\n%b\r\n%b" % (before, len(ballot), ballot, behind)
        self.packed = b"".join((begins, *map(_PACKED_PAIR, rounds), middle, *map(bulk, map(_OWNER, rounds))))

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`: every lock was granted with the fence that was proposed."""
        # Two digits from 8 locks on.
        time_at = at + (_TIME if len(self.rounds) < 8 else _TIME + 1)  # noqa: PLR2004
        digits = data[time_at : time_at + _TIME_DIGITS]
        usual = self._granted % (request_id, digits)
        if not digits.isdigit() or digits < b"1" or not data.startswith(usual, at):
            return 0
        take(self.rounds, node, granted_at(self._proposed, int(digits) / 1_000_000))
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`.

        The request id is followed by the node's time, and that by an answer for each lock.  A node without a
        vote gives no answers.
        """
        if type(reply) is not list or len(reply) < 2 or reply[0] != request_id or type(reply[1]) is not int:  # noqa: PLR2004
            return False
        answers, time = reply[2:], reply[1] / 1_000_000
        # The node has no vote: it is in quarantine, or has lost its memory.
        if not answers:
            take(self.rounds, node, NO_VOTE)
            return True
        if not self._fit(answers):
            return False
        # Each lock has its own answer.  Example: one lock is taken, and the counter of another one already
        # stood above the ballot, so that its fence is greater than the one that was proposed.
        self._hand_out(node, answers, lambda said: read_batched_grant(said, time), fail)
        return True


@final
class Releases(ScriptBatch):
    """Releases without a counter to raise; other processes are notified of all of them, or of none."""

    script = _scripts.RELEASE_MANY
    _fits = staticmethod(fits_batched_release)
    _read = staticmethod(read_batched_release)
    terms = attrgetter("quiet")
    reader = attrgetter("kind.release.read")

    @staticmethod
    def command(round_: Asked) -> Command:
        """As in `Batch`."""
        return round_.primitive.release(round_.owner, round_.ttl, quiet=round_.quiet)

    def __init__(self, rounds: Sequence[Asked]) -> None:
        self.rounds = rounds
        n = len(rounds)
        self._ones, self._usual = _ones(n), RELEASED
        begins, notify = _begins(self.script, n, 1 + n + 1), _EMPTY if rounds[0].quiet else _NOTIFY
        self.packed = b"".join((begins, *map(_PACKED_KEY, rounds), notify, *map(bulk, map(_OWNER, rounds))))


@final
class Extensions(ScriptBatch):
    """Extensions by the same ttl, either all with a fence or all without."""

    script = _scripts.EXTEND_MANY
    _fits = staticmethod(fits_int)
    _read = staticmethod(read_extend)
    terms = staticmethod(lambda round_: (round_.ttl, round_.fence > 0))
    reader = attrgetter("kind.extend.read")

    @staticmethod
    def command(round_: Asked) -> Command:
        """As in `Batch`."""
        return round_.primitive.extend(round_.owner, round_.ttl, round_.fence)

    def __init__(self, rounds: Sequence[Asked]) -> None:
        self.rounds = rounds
        first, n = rounds[0], len(rounds)
        primitive, fenced = first.primitive, first.fence > 0
        self._ones, self._usual = _ones(n), GRANTED
        self.conditional = bool(primitive.packed_incarnation)
        each = 2 if fenced else 1
        added = PRECONDITION_SIZE + 1 if self.conditional else 1
        words = [
            _begins(self.script, each * n + self.conditional, 2 + each * n + added),
            *map(_PACKED_PAIR if fenced else _PACKED_KEY, rounds),
            primitive.packed_incarnation,
            bulk(ms(first.ttl)),
            primitive.packed_fence_ttl if fenced else _EMPTY,
        ]
        for round_ in rounds:
            words.append(bulk(round_.owner))
            if fenced:
                words.append(bulk(b"%d" % round_.fence))
        self.packed = b"".join(words)
