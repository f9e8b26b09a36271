"""Batches: what is asked for several locks in one turn of the loop, the same bytes for every node (R42).

What one script does for up to `MAX_BATCH` locks costs a server a third of what as many scripts do.  The locks
of a batch have nothing else in common: each is granted or refused alone, and a key of a wrong type is the
answer of its lock alone.  Plain acquires are no script: they stay the Redlock page's ``SET key owner NX PX
ttl``, one behind the other; where votes rest on the record it is read once, behind the last (R12).

A batch stands in for the commands of its rounds.  Whatever is no answer to it as a whole (an error, a
connection that ends, a node that has to be asked in another way) is seen as if each lock had been asked for
alone, by the `command` of its round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from .._core.clock_watch import ClockWatch
from .._core.command import GRANTED, PRECONDITION_SIZE, Answer, Script, Silence
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
from .._kinds.primitive import bulk, packed_ms, packed_number
from .._node.parcel import Fail
from .asked import AcquireRound, Asked, ExtendRound, ReleaseRound
from .round import grant_all

MAX_BATCH: Final = 32
"""Locks that one script deals with: it holds up a server for less than half a millisecond."""

_CHANGED: Final = Silence(INCARNATION_CHANGED)

_SET: Final = b"OK"

_LOUD: Final = bulk(b"1")

_EMPTY: Final = bulk(b"")


class Batch(ABC):
    """Several locks' parts in one turn; see `_node.pipe.Parcel`."""

    replies = 1
    """How many replies it has from each node."""
    script: Script | None = None
    """None for plain commands, whose replies have no request id."""
    conditional = False
    """Whether the node adds its precondition before the request id (R12)."""
    probed = False
    """Whether it reads the incarnation record behind its votes (R12)."""
    packed: bytes
    """What every node is sent, without precondition and request id."""
    rounds: Sequence[Asked]

    @abstractmethod
    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Hand a node's reply to the rounds; False when it is no answer to this."""

    def expect(self, node: int, incarnation: bytes) -> None:
        """Take note of the incarnation record that a node has as it is asked."""
        raise NotImplementedError("only of what is `probed`")

    @property
    def packed_in_full(self) -> bytes:
        """The same with the script's source, for a server that does not know it."""
        assert self.script is not None, "packed"
        short, full = (
            b"$7\r\nEVALSHA\r\n" + bulk(self.script.digest),
            b"$4\r\nEVAL\r\n" + bulk(self.script.source),
        )
        return self.packed.replace(short, full, 1)

    @property
    def done(self) -> bool:
        """Whether every node has answered to every round, or was counted as silent."""
        for round_ in self.rounds:  # noqa: SIM110 (a generator would be the slowest part of it)
            if round_.pending:
                return False
        return True


@final
class PlainAcquires(Batch):
    """``SET key owner NX PX ttl`` for each lock; behind the last a look at the record, where one is due."""

    def __init__(self, rounds: Sequence[AcquireRound]) -> None:
        self.rounds = rounds
        incarnation = rounds[0].primitive.packed_incarnation
        self.probed = bool(incarnation)
        self.replies = len(rounds) + self.probed
        words = [round_.primitive.packed_set(round_.owner, round_.ttl) for round_ in rounds]
        if incarnation:
            words.append(b"*2\r\n$3\r\nGET\r\n" + incarnation)
        self.packed = b"".join(words)
        self._expected: dict[int, bytes] = {}
        self._got: dict[int, list[Any]] = {}

    def expect(self, node: int, incarnation: bytes) -> None:
        """As in `Batch`."""
        self._expected[node] = incarnation

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Keep a reply; hand all of them on with the last."""
        got = self._got.get(node)
        if got is None:
            got = self._got[node] = []
        got.append(reply)
        n = len(got)
        last = n == self.replies
        if self.probed and last:
            fits = reply != _SET  # else the answer to one of the others is missing
        else:
            fits = reply == _SET or reply is None or isinstance(reply, Exception)
        if fits and last:
            del self._got[node]
            self._hand_out(node, got, fail)
        return fits

    def _hand_out(self, node: int, got: list[Any], fail: Fail) -> None:
        if self.probed and (why := self._why_not(node, got.pop())) is not None:
            for round_ in self.rounds:
                round_.on_reply(node, why)
        elif got.count(_SET) == len(got):
            grant_all(self.rounds, node, GRANTED)
        else:
            for round_, said in zip(self.rounds, got, strict=True):
                if isinstance(said, Exception):
                    fail((round_.command, round_, node), str(said))
                else:
                    round_.on_reply(node, said)

    def _why_not(self, node: int, found: object) -> Silence | None:
        """Return why no vote of this node counts; None when the incarnation record was there behind all."""
        if isinstance(found, Exception):
            return Silence(f"its incarnation record could not be read: {found}")
        return None if found == self._expected.get(node) else _CHANGED


class ScriptBatch(Batch):
    """One script for all of its locks: each has its place in the one reply."""

    _fits: Callable[[object], bool]
    """Whether something could be the answer to one lock."""

    def _pack(self, script: Script, keys: int, words: Sequence[bytes], args: int) -> None:
        """Pack it; `words` are its keys and arguments, packed already.  The node adds what is its own."""
        self.script = script
        count = 3 + keys + args + (PRECONDITION_SIZE + 1 if self.conditional else 1)
        begins = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%d\r\n" % (
            count,
            script.digest,
            len(str(keys)),
            keys,
        )
        self.packed = b"".join((begins, *words))

    def _fit(self, answers: Sequence[object]) -> bool:
        """Whether there is one for each lock: what could be its answer, or its error."""
        fits = self._fits
        return len(answers) == len(self.rounds) and all(type(each) is bytes or fits(each) for each in answers)

    def _hand_out(self, node: int, answers: Sequence[Any], read: Callable[[Any], Answer], fail: Fail) -> None:
        """Give each round its own answer."""
        for round_, said in zip(self.rounds, answers, strict=True):
            if type(said) is bytes:  # an error that concerns this lock alone
                fail((round_.command, round_, node), said.decode(errors="replace"))
            else:
                round_.take(node, read(said))


@final
class FencedAcquires(ScriptBatch):
    """Acquires with one ttl, one ballot and blocks of one size."""

    conditional = True
    _fits = staticmethod(fits_int)

    def __init__(self, rounds: Sequence[AcquireRound], clocks: ClockWatch, now: Callable[[], float]) -> None:
        self.rounds = self._asked = rounds
        self._clocks = clocks
        self._now = now
        first, n = rounds[0], len(rounds)
        primitive = first.primitive
        self._proposed = range_end(first.ballot, first.block)
        self._hoped = [self._proposed] * n
        words = [round_.primitive.packed_pair for round_ in rounds]
        words += (
            primitive.packed_incarnation,
            packed_ms(first.ttl),
            packed_number(first.ballot),
            packed_number(first.block),
            primitive.packed_fence_ttl,
        )
        words += [b"$%d\r\n%b\r\n" % (len(round_.owner), round_.owner) for round_ in rounds]
        self._pack(primitive.batches.acquire, 2 * n + 1, words, 4 + n)

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Batch`.  Behind the request id comes the node's time of day, alone where it has no vote."""
        asked = self._asked
        if type(reply) is not list or len(reply) < 2 or reply[0] != request_id or type(reply[1]) is not int:  # noqa: PLR2004
            return False
        answers, time = reply[2:], reply[1] / 1_000_000
        now = self._now()
        counts = time - now <= self._clocks.limits[node] or self._clocks.believes(node, now, time)
        if counts and answers == self._hoped:  # by far the most frequent case
            for round_ in asked:
                round_.agreed += round_.answers[node] is None  # a late one does not count
            grant_all(asked, node, granted_at(self._proposed, time))
            return True
        if not answers:
            for round_ in asked:
                round_.take(node, NO_VOTE)
            return True
        if not self._fit(answers):
            return False
        if counts:
            for round_, said in zip(asked, answers, strict=True):
                round_.agreed += said == self._proposed and round_.answers[node] is None
        self._hand_out(node, answers, lambda said: read_batched_grant(said, time), fail)
        return True


class OneAnswerEach(ScriptBatch):
    """A script that answers with nothing but an answer for each lock."""

    _read: Callable[[Any], Answer]
    """Reads what was said of one lock."""
    _usual: Answer
    """What it nearly always is."""
    _hoped: list[int]
    """How the script says that, for all of the locks."""

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Batch`."""
        if type(reply) is not list or not reply or reply[0] != request_id:
            return False
        answers = reply[1:]
        if answers == self._hoped:
            grant_all(self.rounds, node, self._usual)
            return True
        if not self._fit(answers):
            return False
        self._hand_out(node, answers, self._read, fail)
        return True


@final
class Releases(OneAnswerEach):
    """Releases of locks that have no counter to be raised; all are told to other processes, or none."""

    _fits = staticmethod(fits_batched_release)
    _read = staticmethod(read_batched_release)
    _usual = RELEASED

    def __init__(self, rounds: Sequence[ReleaseRound]) -> None:
        self.rounds = rounds
        n = len(rounds)
        self._hoped = [1] * n
        words = [round_.primitive.packed_key for round_ in rounds]
        words.append(_EMPTY if rounds[0].quiet else _LOUD)
        words += [b"$%d\r\n%b\r\n" % (len(round_.owner), round_.owner) for round_ in rounds]
        self._pack(rounds[0].primitive.batches.release, n, words, 1 + n)


@final
class Extensions(OneAnswerEach):
    """Extensions by one ttl, all of them with a fence, or none."""

    _fits = staticmethod(fits_int)
    _read = staticmethod(read_extend)
    _usual = GRANTED

    def __init__(self, rounds: Sequence[ExtendRound]) -> None:
        self.rounds = rounds
        first, n = rounds[0], len(rounds)
        primitive, fenced = first.primitive, first.fenced
        self._hoped = [1] * n
        self.conditional = bool(primitive.packed_incarnation)
        words = [round_.primitive.packed_pair if fenced else round_.primitive.packed_key for round_ in rounds]
        words += (
            primitive.packed_incarnation,
            packed_ms(first.ttl),
            primitive.packed_fence_ttl if fenced else _EMPTY,
        )
        for round_ in rounds:
            words.append(bulk(round_.owner))
            if fenced:
                words.append(bulk(b"%d" % round_.fence))
        each = 2 if fenced else 1
        self._pack(primitive.batches.extend, each * n + self.conditional, words, 2 + each * n)
