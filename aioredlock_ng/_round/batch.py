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
from .._node.pipe import Fail
from .round import AcquireRound, Asked, ExtendRound, ReleaseRound, grant_all

MAX_BATCH: Final = 32
"""Most locks in one script: it blocks a server for less than half a millisecond."""

_CHANGED: Final = Silence(INCARNATION_CHANGED)

_SET: Final = b"OK"

_NOTIFY: Final = bulk(b"1")

_EMPTY: Final = bulk(b"")


class Batch(ABC):
    """The operations of several locks in one turn of the event loop; see `_node.pipe.Parcel`."""

    replies = 1
    """The number of replies from each node."""
    script: Script | None = None
    """None for plain commands, whose replies have no request id."""
    conditional = False
    """Whether the node adds its precondition before the request id (R12)."""
    probed = False
    """Whether the batch reads the incarnation record behind its votes (R12)."""
    packed: bytes
    """The bytes for every node, without precondition and request id."""
    rounds: Sequence[Asked]

    @abstractmethod
    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Pass a node's reply to the rounds; False when it cannot be a reply to this batch."""

    def expect(self, node: int, incarnation: bytes) -> None:
        """Store the incarnation record that a node has when the batch is sent."""
        raise NotImplementedError("only of what is `probed`")

    @property
    def packed_in_full(self) -> bytes:
        """`packed` with the script's source, for a server that does not have the script."""
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
        self._expected: dict[int, bytes] = {}
        self._got: dict[int, list[Any]] = {}

    def expect(self, node: int, incarnation: bytes) -> None:
        """As in `Batch`."""
        self._expected[node] = incarnation

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
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
        # Every lock was free: the usual case.
        elif got.count(_SET) == len(got):
            grant_all(self.rounds, node, GRANTED)
        # Each lock has its own reply.  Example: "a" was free, "b" is taken, and "c" met a full memory.
        else:
            for round_, said in zip(self.rounds, got, strict=True):
                if isinstance(said, Exception):
                    fail((round_.command, round_, node), str(said))
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

    def _pack(self, script: Script, keys: int, words: Sequence[bytes], args: int) -> None:
        """Pack the command; `words` are its keys and arguments, already packed."""
        self.script = script
        # Counted here, and appended by each node: its precondition, if any, and its request id.
        count = 3 + keys + args + (PRECONDITION_SIZE + 1 if self.conditional else 1)
        begins = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%d\r\n" % (
            count,
            script.digest,
            len(str(keys)),
            keys,
        )
        self.packed = b"".join((begins, *words))

    def _fit(self, answers: Sequence[object]) -> bool:
        """Whether there is an answer for each lock, or the text of an error."""
        fits = self._fits
        return len(answers) == len(self.rounds) and all(type(each) is bytes or fits(each) for each in answers)

    def _hand_out(self, node: int, answers: Sequence[Any], read: Callable[[Any], Answer], fail: Fail) -> None:
        """Give each round its own answer."""
        for round_, said in zip(self.rounds, answers, strict=True):
            # An error of this lock only, such as a key of another type: the others keep their answers.
            if type(said) is bytes:
                fail((round_.command, round_, node), said.decode(errors="replace"))
            else:
                round_.take(node, read(said))


@final
class FencedAcquires(ScriptBatch):
    """Acquires with the same ttl, the same ballot and fence ranges of the same length."""

    conditional = True
    _fits = staticmethod(fits_int)

    def __init__(self, rounds: Sequence[AcquireRound], clocks: ClockWatch, now: Callable[[], float]) -> None:
        self.rounds = self._asked = rounds
        self._clocks = clocks
        self._now = now
        first, n = rounds[0], len(rounds)
        primitive = first.primitive
        self._proposed = range_end(first.ballot, first.block)
        self._all_granted = [self._proposed] * n
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
        """As in `Batch`.  The request id is followed by the node's time, and that by an answer for each lock.

        A node without a vote gives no answers.
        """
        asked = self._asked
        if type(reply) is not list or len(reply) < 2 or reply[0] != request_id or type(reply[1]) is not int:  # noqa: PLR2004
            return False
        answers, time = reply[2:], reply[1] / 1_000_000
        now = self._now()
        # A grant of a node whose clock has jumped does not count for the certificate (R14).  The comparison
        # with the limit is what `believes` nearly always comes down to, without the call.
        counts = time - now <= self._clocks.limits[node] or self._clocks.believes(node, now, time)
        # Every lock was granted with the fence that was proposed: by far the most frequent case.
        if counts and answers == self._all_granted:
            for round_ in asked:
                # A late answer does not count: the node's vote in this round is silence.
                round_.agreed += round_.answers[node] is None
            grant_all(asked, node, granted_at(self._proposed, time))
            return True
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
    """The answer to nearly every lock."""
    _usual_reply: list[int]
    """The reply, without the request id, in which every lock has the usual answer."""

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """As in `Batch`."""
        if type(reply) is not list or not reply or reply[0] != request_id:
            return False
        answers = reply[1:]
        # Every lock was held, and is extended or released now: the usual case.
        if answers == self._usual_reply:
            grant_all(self.rounds, node, self._usual_answer)
            return True
        # No reply to this script: replies and commands are out of step, and the node is reconnected (R15).
        if not self._fit(answers):
            return False
        self._hand_out(node, answers, self._read, fail)
        return True


@final
class Releases(OneAnswerEach):
    """Releases without a counter to raise; other processes are notified of all of them, or of none."""

    _fits = staticmethod(fits_batched_release)
    _read = staticmethod(read_batched_release)
    _usual_answer = RELEASED

    def __init__(self, rounds: Sequence[ReleaseRound]) -> None:
        self.rounds = rounds
        n = len(rounds)
        self._usual_reply = [1] * n
        words = [round_.primitive.packed_key for round_ in rounds]
        words.append(_EMPTY if rounds[0].quiet else _NOTIFY)
        words += [b"$%d\r\n%b\r\n" % (len(round_.owner), round_.owner) for round_ in rounds]
        self._pack(rounds[0].primitive.batches.release, n, words, 1 + n)


@final
class Extensions(OneAnswerEach):
    """Extensions by the same ttl, either all with a fence or all without."""

    _fits = staticmethod(fits_int)
    _read = staticmethod(read_extend)
    _usual_answer = GRANTED

    def __init__(self, rounds: Sequence[ExtendRound]) -> None:
        self.rounds = rounds
        first, n = rounds[0], len(rounds)
        primitive, fenced = first.primitive, first.fenced
        self._usual_reply = [1] * n
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
