"""Batches: one command for several locks in one turn of the event loop, the same for every node (R42).

One script for up to `MAX_BATCH` locks costs a server a third of what a script for each lock does.  The locks
of a batch are independent: each is granted or refused on its own, and a key of a wrong type is an error of
its lock only.  Plain acquires use no script.  They remain the Redlock page's ``SET key owner NX PX ttl``, one
behind the other; where votes depend on the incarnation record, it is read once, behind the last one (R12).

A batch stands for the commands of its rounds.  If there is no reply to the batch as a whole (an error, a
connection that ends, a node that cannot take batches), each lock is treated as if it had been asked for on
its own, by the `command` of its round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Self, final

from .. import _scripts
from .._core.clock_watch import ClockWatch
from .._core.command import GRANTED, PRECONDITION_SIZE, Answer, Command, Reply, Script, Silence
from .._core.fencing import range_end
from .._core.quarantine import INCARNATION_CHANGED
from .._core.quorum import WON
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
from .round import Asks, Granting, Round, grant

MAX_BATCH: Final = 32
"""Most locks in one script: it blocks a server for less than half a millisecond."""

_CHANGED: Final = Silence(INCARNATION_CHANGED)

_SET: Final = b"OK"

_OK: Final = b"+OK\r\n"

_ONE: Final = b":1\r\n"

_TIME_DIGITS: Final = 16
"""Digits of a node's time of day in microseconds, until the year 2286."""

_TIME: Final = 14
"""Where the time stands in the reply to a fenced acquire."""

_NOTIFY: Final = bulk(b"1")

_EMPTY: Final = bulk(b"")


# -- packing: what the nodes add, a precondition if any and the request id, is counted here ------------


@lru_cache(2 * MAX_BATCH)
def _begins(script: Script, keys: int, args: int) -> bytes:
    """Pack the beginning of a script's command, up to its keys."""
    return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b" % (3 + keys + args, script.digest, bulk(b"%d" % keys))


@lru_cache(2 * MAX_BATCH)
def _around_ballot(incarnation: bytes, ttl: float, block: int, fence_ttl: bytes) -> tuple[bytes, bytes]:
    """Pack what stands before and behind the ballot of fenced acquires: the same in nearly all of them."""
    return incarnation + bulk(ms(ttl)), bulk(b"%d" % block) + fence_ttl


def _packed_acquires(first: AcquireRound, n: int, pairs: bytes, owners: bytes) -> bytes:
    """Pack fenced acquires of `n` locks; all but their keys and owners is as in the first."""
    primitive, ballot = first.primitive, b"%d" % first.ballot
    before, behind = _around_ballot(
        primitive.packed_incarnation, first.ttl, first.block, primitive.packed_fence_ttl
    )
    begins = _begins(_scripts.ACQUIRE_MANY, 2 * n + 1, 4 + n + PRECONDITION_SIZE + 1)
    return b"%b%b%b$%d\r\n%b\r\n%b%b" % (begins, pairs, before, len(ballot), ballot, behind, owners)


def _packed_releases(first: ReleaseRound, n: int, keys: bytes, owners: bytes) -> bytes:
    """Pack releases of `n` locks."""
    begins = _begins(_scripts.RELEASE_MANY, n, 1 + n + 1)
    return b"%b%b%b%b" % (begins, keys, _EMPTY if first.quiet else _NOTIFY, owners)


# -- the rounds of one lock each --------------------------------------------------------------------


class Asked(Parcel, Round):
    """A round for one lock.

    Where nothing else leaves with it, it is its own batch: it has the attributes of a `Parcel`.  Any reply
    but the usual one is left to the `batch`.
    """

    primitive: Primitive
    owner: bytes
    quiet = False
    """Whether it is a release that notifies no process."""
    ballot = 0
    """The proposed fence, or the first of the proposed fence range; 0 without fencing."""
    proposed = 0
    """The last fence of the proposed range, which is what nodes store; 0 without fencing."""
    asked_at = 0.0
    """When the turn of the event loop read the manager's clock for it, if it is an acquire."""
    agreed = 0
    """Number of nodes that granted the proposed fences and count for their certificate (R10)."""

    @property
    @abstractmethod
    def command(self) -> Command:
        """The round's operation as a command for this lock alone."""

    @abstractmethod
    def parcel(self) -> Asked | Batch:
        """Return what a pipe takes for it; usually the round itself, which is packed now."""

    @abstractmethod
    def batch(self) -> Batch:
        """Return a batch of this round alone."""

    @property
    def rounds(self) -> tuple[Self]:
        """The rounds that get the answers."""
        return (self,)

    @property
    def packed_in_full(self) -> bytes:
        """As in `Parcel`."""
        return self.batch().packed_in_full

    def questions(self, node: int) -> Iterator[Question]:
        """As in `Parcel`."""
        yield Question(self.command, self, node)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`."""
        return self.batch().hear(node, reply, request_id, fail)

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`, when it is its own batch."""
        # A plain acquire: the name was free.
        if self.script is None:
            usual, answer = _OK, GRANTED
        # A release: the lock was held, and no process listens.
        elif not self.ballot:
            usual, answer = b"*2\r\n$3\r\n%b\r\n:1\r\n" % request_id, RELEASED
        # An acquire with a fence: the node has granted the proposed one.
        else:
            digits = data[at + _TIME : at + _TIME + _TIME_DIGITS]
            usual = b"*3\r\n$3\r\n%b\r\n:%b\r\n:%d\r\n" % (request_id, digits, self.proposed)
            if not digits.isdigit() or digits < b"1":  # as no server writes a number
                return 0
            time = int(digits) / 1_000_000
            # As in `FencedAcquires.recognises`: the clock has not jumped, or `hear` judges it (R14).  The
            # time since the question counts as part of a jump: that is the safe side, and saves a reading.
            if time - self.asked_at > self._outbox.clocks.limits[node]:
                return 0
            answer = granted_at(self.proposed, time)
        if not data.startswith(usual, at):
            return 0
        answers = self.answers
        if self.ballot:
            self.agreed += answers[node] is None
        # It comes late; or not every answer so far is a grant; or not only the alarm waits.
        odd = answers[node] is not None or self.granted + self.pending < self.size
        if odd or self._waiting or self._then is not None:
            self.take(node, answer)
            return len(usual)
        # As in `grant`.
        answers[node] = answer
        self.pending -= 1
        self.granted = granted = self.granted + 1
        if granted == self.quorum:
            self.verdict = WON
            if (alarm := self._alarm) is not None and not alarm.done():
                alarm.set_result(True)
        return len(usual)


@final
class AcquireRound(Asked, Granting):
    """The acquire of one name."""

    # No keywords, as in all classes of which each cycle makes an object: with them it takes longer.
    def __init__(  # noqa: PLR0917
        self,
        outbox: Asks,
        primitive: Primitive,
        owner: bytes,
        ttl: float,
        ballot: int,
        block: int,
        asked_at: float,
    ) -> None:
        # As `_begin`: this and a release are in every cycle.
        self._outbox = outbox
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.answers = [None] * size
        self.primitive = primitive
        self.owner = owner
        self.ttl = ttl
        self.block = block
        self.asked_at = asked_at
        if ballot:
            self.ballot = ballot
            self.proposed = range_end(ballot, block)

    def thin_out(self) -> None:
        """As in `Round`."""
        super().thin_out()
        self.packed = b""

    def read(self, reply: Reply) -> Answer:
        """Read the reply to `command`."""
        return self.primitive.read_acquire(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.acquire(self.owner, self.ttl, self.ballot, self.block)

    @property
    def fences_may_differ(self) -> bool:  # type: ignore[override]
        """Whether a node granted at another fence."""
        if self._fences_differed is not None:
            return self._fences_differed
        # No fences; or every grant came in a batch with the proposed fences, the usual case.
        if not self.ballot or self.agreed == self.granted:
            return False
        # Some grants were not counted as agreed: their nodes may all stand at another fence than the proposed
        # one, which they were above, or got a command for this lock alone.  So compare each.
        return self._differs_from(self.fence or self.proposed)

    def parcel(self) -> Asked | Batch:
        """As in `Asked`."""
        primitive, owner = self.primitive, self.owner
        if self.ballot:
            self.script, self.conditional = _scripts.ACQUIRE_MANY, True
            self.packed = _packed_acquires(
                self, 1, primitive.packed_pair, b"$%d\r\n%b\r\n" % (len(owner), owner)
            )
            return self
        # A read of the incarnation record has to follow it: that makes two replies.
        if primitive.packed_incarnation:
            return PlainAcquires((self,))
        self.packed = primitive.packed_set(owner, self.ttl)
        return self

    def batch(self) -> Batch:
        """As in `Asked`."""
        if self.ballot:
            return FencedAcquires((self,), self._outbox.clocks, self._outbox.now)
        return PlainAcquires((self,))


@final
class ReleaseRound(Asked):
    """The release of one name, without a counter to raise."""

    learns = True
    script = _scripts.RELEASE_MANY

    def __init__(  # noqa: PLR0917 (see `AcquireRound`)
        self,
        outbox: Asks,
        primitive: Primitive,
        owner: bytes,
        keeps: float,
        quiet: bool,  # noqa: FBT001
        unsent: Sequence[int],
    ) -> None:
        # As `_begin`.
        self._outbox = outbox
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.answers = [None] * size
        self.primitive = primitive
        self.owner = owner
        self.keeps = keeps
        if quiet:
            self.quiet = True
        if unsent:
            self.unsent = unsent

    def read(self, reply: Reply) -> Answer:
        """Read the reply to `command`."""
        return self.primitive.kind.release.read(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.release(self.owner, self.keeps, quiet=self.quiet)

    def parcel(self) -> Asked | Batch:
        """As in `Asked`."""
        owner = self.owner
        self.packed = _packed_releases(
            self, 1, self.primitive.packed_key, b"$%d\r\n%b\r\n" % (len(owner), owner)
        )
        return self

    def batch(self) -> Batch:
        """As in `Asked`."""
        return Releases((self,))


@final
class ExtendRound(Asked):
    """The extension of one name."""

    # An extension raises the counters of the nodes that it reaches; a silent node's is raised at the next
    # acquire.
    fences_may_differ = False

    def __init__(
        self,
        outbox: Asks,
        primitive: Primitive,
        owner: bytes,
        ttl: float,
        *,
        fence: int,
        on_answer: Callable[[int, Answer], None],
    ) -> None:
        self._begin(outbox)
        self._on_answer = on_answer
        self.primitive = primitive
        self.owner = owner
        self.ttl = ttl
        self.fence = fence
        self.fenced = fence > 0

    def read(self, reply: Reply) -> Answer:
        """Read the reply to `command`."""
        return self.primitive.kind.extend.read(reply)

    @property
    def command(self) -> Command:
        """As in `Asked`."""
        return self.primitive.extend(self.owner, self.ttl, self.fence)

    def parcel(self) -> Asked | Batch:
        """As in `Asked`."""
        return self.batch()

    def batch(self) -> Batch:
        """As in `Asked`."""
        return Extensions((self,))


# -- batches ------------------------------------------------------------------------------------------


class Batch(Parcel):
    """The operations of several locks in one turn of the event loop; see `_node.pipe.Parcel`."""

    rounds: Sequence[Asked]

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
            yield Question(round_.command, round_, node)

    @property
    def pending(self) -> bool:
        """Whether a node has not answered to a round, nor was counted as silent."""
        for round_ in self.rounds:  # noqa: SIM110 (a generator would be the slowest part of it)
            if round_.pending:
                return True
        return False


@final
class PlainAcquires(Batch):
    """``SET key owner NX PX ttl`` for each lock; where votes need the record, one GET of it at the end."""

    def __init__(self, rounds: Sequence[AcquireRound]) -> None:
        self.rounds = rounds
        incarnation = rounds[0].primitive.packed_incarnation
        self.probed = bool(incarnation)
        self.replies = len(rounds) + self.probed
        words = [round_.primitive.packed_set(round_.owner, round_.ttl) for round_ in rounds]
        if incarnation:
            words.append(b"*2\r\n$3\r\nGET\r\n" + incarnation)
        self.packed = b"".join(words)
        self._oks = len(rounds) * _OK
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
        grant(self.rounds, node, GRANTED)
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Keep a reply; with the last one, pass all of them to the rounds."""
        got = self._got.get(node)
        if got is None:
            got = self._got[node] = []
        got.append(reply)
        n = len(got)
        last = n == self.replies
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
                    fail(Question(round_.command, round_, node), str(said))
                else:
                    round_.on_reply(node, said)

    def _why_not(self, node: int, found: object) -> Silence | None:
        """Return why no vote of this node counts; None when the expected incarnation record was found."""
        if isinstance(found, Exception):
            return Silence(f"its incarnation record could not be read: {found}")
        return None if found == self._expected.get(node) else _CHANGED


class ScriptBatch(Batch):
    """One script for all locks of the batch; its one reply has an item for each lock."""

    _fits: Callable[[object], bool]
    """Whether a value could be the answer to one lock."""

    def _fit(self, answers: Sequence[object]) -> bool:
        """Whether there is an answer for each lock, or the text of an error."""
        fits = self._fits
        return len(answers) == len(self.rounds) and all(type(each) is bytes or fits(each) for each in answers)

    def _hand_out(self, node: int, answers: Sequence[Any], read: Callable[[Any], Answer], fail: Fail) -> None:
        """Give each round its own answer."""
        for round_, said in zip(self.rounds, answers, strict=True):
            # An error of this lock only, such as a key of another type: the others keep their answers.
            if type(said) is bytes:
                fail(Question(round_.command, round_, node), said.decode(errors="replace"))
            else:
                round_.take(node, read(said))


@final
class FencedAcquires(ScriptBatch):
    """Acquires with the same ttl, the same ballot and fence ranges of the same length."""

    script = _scripts.ACQUIRE_MANY
    conditional = True
    _fits = staticmethod(fits_int)

    def __init__(self, rounds: Sequence[AcquireRound], clocks: ClockWatch, now: Callable[[], float]) -> None:
        self.rounds = self._asked = rounds
        self._clocks = clocks
        self._now = now
        first, n = rounds[0], len(rounds)
        self._proposed = first.proposed
        self._fences = b"\r\n" + n * (b":%d\r\n" % self._proposed)
        # A round that is packed already: it was sent by itself, and its reply is not the usual one.
        if not (packed := first.packed):
            pairs = b"".join([round_.primitive.packed_pair for round_ in rounds])
            owners = b"".join([bulk(round_.owner) for round_ in rounds])
            packed = _packed_acquires(first, n, pairs, owners)
        self.packed = packed

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`: every lock was granted with the fence that was proposed."""
        begin = b"*%d\r\n$3\r\n%b\r\n:" % (len(self.rounds) + 2, request_id)
        time_at = at + len(begin)
        digits = data[time_at : time_at + _TIME_DIGITS]
        usual = b"%b%b%b" % (begin, digits, self._fences)
        if not digits.isdigit() or digits < b"1" or not data.startswith(usual, at):
            return 0
        time = int(digits) / 1_000_000
        # The clock has jumped, as far as this comparison can tell: `hear` judges it (R14).
        if time - self._now() > self._clocks.limits[node]:
            return 0
        for round_ in self._asked:
            # A late answer does not count: the node's vote in this round is silence.
            round_.agreed += round_.answers[node] is None
        grant(self._asked, node, granted_at(self._proposed, time))
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`.

        The request id is followed by the node's time, and that by an answer for each lock.  A node without a
        vote gives no answers.
        """
        asked = self._asked
        if type(reply) is not list or len(reply) < 2 or reply[0] != request_id or type(reply[1]) is not int:  # noqa: PLR2004
            return False
        answers, time = reply[2:], reply[1] / 1_000_000
        now = self._now()
        # A grant of a node whose clock has jumped does not count for the certificate (R14).  The comparison
        # with the limit is what `believes` nearly always comes down to, without the call.
        counts = time - now <= self._clocks.limits[node] or self._clocks.believes(node, now, time)
        # The node has no vote: it is in quarantine, or has lost its memory.
        if not answers:
            for round_ in asked:
                round_.take(node, NO_VOTE)
            return True
        if not self._fit(answers):
            return False
        # Each lock has its own answer.  Example: one lock is taken, and the counter of another one already
        # stood above the ballot, so that its fence is greater than the one that was proposed.
        if counts:
            for round_, said in zip(asked, answers, strict=True):
                round_.agreed += said == self._proposed and round_.answers[node] is None
        self._hand_out(node, answers, lambda said: read_batched_grant(said, time), fail)
        return True


class OneAnswerEach(ScriptBatch):
    """A script whose reply is the request id and an answer for each lock."""

    _read: Callable[[Any], Answer]
    """Reads the answer to one lock."""
    _usual_answer: Answer
    """The answer to nearly every lock, a 1."""

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """As in `Parcel`: every lock was held, and is extended or released now."""
        n = len(self.rounds)
        usual = b"*%d\r\n$3\r\n%b\r\n%b" % (n + 1, request_id, n * _ONE)
        if not data.startswith(usual, at):
            return 0
        grant(self.rounds, node, self._usual_answer)
        return len(usual)

    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`."""
        if type(reply) is not list or not reply or reply[0] != request_id:
            return False
        answers = reply[1:]
        # No reply to this script: replies and commands are out of step, and the node is reconnected (R15).
        if not self._fit(answers):
            return False
        self._hand_out(node, answers, self._read, fail)
        return True


@final
class Releases(OneAnswerEach):
    """Releases without a counter to raise; other processes are notified of all of them, or of none."""

    script = _scripts.RELEASE_MANY
    _fits = staticmethod(fits_batched_release)
    _read = staticmethod(read_batched_release)
    _usual_answer = RELEASED

    def __init__(self, rounds: Sequence[ReleaseRound]) -> None:
        self.rounds = rounds
        n = len(rounds)
        # As in `FencedAcquires`.
        if not (packed := rounds[0].packed):
            keys = b"".join([round_.primitive.packed_key for round_ in rounds])
            owners = b"".join([bulk(round_.owner) for round_ in rounds])
            packed = _packed_releases(rounds[0], n, keys, owners)
        self.packed = packed


@final
class Extensions(OneAnswerEach):
    """Extensions by the same ttl, either all with a fence or all without."""

    script = _scripts.EXTEND_MANY
    _fits = staticmethod(fits_int)
    _read = staticmethod(read_extend)
    _usual_answer = GRANTED

    def __init__(self, rounds: Sequence[ExtendRound]) -> None:
        self.rounds = rounds
        first, n = rounds[0], len(rounds)
        primitive, fenced = first.primitive, first.fenced
        self.conditional = bool(primitive.packed_incarnation)
        words = [round_.primitive.packed_pair if fenced else round_.primitive.packed_key for round_ in rounds]
        words += (
            primitive.packed_incarnation,
            bulk(ms(first.ttl)),
            primitive.packed_fence_ttl if fenced else _EMPTY,
        )
        for round_ in rounds:
            words.append(bulk(round_.owner))
            if fenced:
                words.append(bulk(b"%d" % round_.fence))
        each = 2 if fenced else 1
        keys, added = each * n + self.conditional, PRECONDITION_SIZE + 1 if self.conditional else 1
        self.packed = b"".join((_begins(_scripts.EXTEND_MANY, keys, 2 + each * n + added), *words))
