"""The pipe, without I/O: commands in → bytes out; bytes in → replies to their callers (rule R15).

Redis answers the commands of one connection in the order in which they came, so a first-in-first-out queue of
receivers is enough to match replies with requests.  A caller that stops waiting leaves its entry in the
queue; the late reply is read, passed on and ignored there.

A RESP3 *push* can come anywhere between the replies and belongs to none of them, with one exception: a
command that (un)subscribes has no other answer than a push, which comes in the order of the replies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat, takewhile
from typing import Any, Final, NamedTuple, TypeAlias, final

import hiredis

from .._core.command import PRECONDITION_SIZE, Command, Proof, Purpose, Receiver, Script, Silence
from .._log import CONTAINED
from .failures import without_secrets

MAX_IN_FLIGHT: Final = 8192
"""Commands of one node that may be unanswered at once; beyond it the node is SILENT (backlog)."""

RESERVED_FOR_RELEASES: Final = 8192
"""Room on top of `MAX_IN_FLIGHT` that only releases and extensions may use."""

RESERVED_FOR_EXTENSIONS: Final = 8192
"""Room on top of that, which only extensions and repairs may use: no burst of others costs a held lease."""

_RESERVED: Final = {
    Purpose.RELEASE: RESERVED_FOR_RELEASES,
    Purpose.EXTEND: RESERVED_FOR_RELEASES + RESERVED_FOR_EXTENSIONS,
    Purpose.REPAIR: RESERVED_FOR_RELEASES + RESERVED_FOR_EXTENSIONS,
}

MAX_REPLY: Final = 8 * 2**20
"""Bytes that may come without completing a reply.  Only the answer to a SCAN is ever longer than a few
kilobytes: one megabyte with the longest of names."""

REQUEST_ID_COUNT: Final = 1000
"""The number of request ids."""

REQUEST_IDS: Final = tuple(b"%03d" % number for number in range(REQUEST_ID_COUNT))
"""Tell a connection's scripts apart: each gets the next of these as its last argument, and begins its answer
with it.  So a missing reply shows in the one behind it (R15), unless a thousand are missing.

They follow the places of commands on a connection, not owners: an acquire and its release, two extensions, a
release and its repetition from the ledger have different ones, though they have an owner in common."""

MISFIT: Final = object()
"""Stands for a reply that is no answer to a script: another command's answer, or an error, which has no id.
It is never passed to a command's `fits`."""

_REQUEST_ID_ARGUMENTS: Final = tuple(
    b"$%d\r\n%b\r\n" % (len(request_id), request_id) for request_id in REQUEST_IDS
)

_NOTHING: Final = object()
"""The parser's return value when no reply is complete (its default, False, is a RESP3 value)."""

_MESSAGE: Final = b"message"

_CONFIRMATIONS: Final = {b"subscribe": b"SUBSCRIBE", b"unsubscribe": b"UNSUBSCRIBE"}
"""The kinds of pushes that answer a command, and the command."""

PUSH: Final = hiredis.PushNotification
"""A RESP3 push: a list of a type of its own."""

_ERROR: Final = hiredis.ReplyError

MAX_HEADS: Final = 4096
"""Beginnings of commands that are kept packed: most keys are used again and again."""

_BLANK: Final = b"$0\r\n\r\n"
"""An empty argument in RESP: keeps a precondition's place in a packed command's count of arguments."""

_packed: Final[Callable[[tuple[bytes, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]

NO_PRECONDITION: Final = _BLANK * PRECONDITION_SIZE
"""The place of a precondition, before there is one."""

_NOWHERE: Final[Callable[[object], None]] = lambda _: None  # noqa: E731

Fail: TypeAlias = "Callable[[Question, str], None]"
"""Called with a command that was answered by an error, and with the error."""


class Parcel(ABC):
    """An entry of a pipe's queue: a command, or those of several locks, the same for all nodes (R42)."""

    __slots__ = ()

    packed = b""
    """The bytes, without precondition and request id."""
    script: Script | None = None
    """None for plain commands, whose replies have no request id."""
    conditional = False
    """Whether the node adds its precondition before the request id (R12)."""
    replies = 1
    """The number of its replies from each node."""
    probed = False
    """Whether it reads the incarnation record behind its votes: then `expect` is called (R12)."""

    @property
    @abstractmethod
    def packed_in_full(self) -> bytes:
        """`packed` with the script's source, for a server that does not have the script."""

    def expect(self, node: int, incarnation: bytes) -> None:
        """Store the incarnation record that a node is expected to have when it is asked."""
        raise NotImplementedError("only of what is `probed`")

    def recognises(self, node: int, data: bytes, at: int, request_id: bytes) -> int:
        """Take the replies that `data` has at a position, if they are the usual ones; return their length.

        0: they have to be parsed, and `hear` takes them.
        """
        return 0

    @abstractmethod
    def hear(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Take a reply; False when it is no answer: an error of a script, or an answer to another command.

        A script's answer begins with `request_id` (R15).
        """

    @abstractmethod
    def questions(self, node: int) -> Iterator[Question]:
        """Yield each lock's command by itself: an error for the whole parcel concerns each of them."""


class _Question(NamedTuple):
    command: Command
    receiver: Receiver
    node: int
    """The receiver's index for this node."""


class Question(_Question, Parcel):
    """A command by itself: a parcel of one."""

    __slots__ = ()

    @property
    def packed(self) -> bytes:  # type: ignore[override]
        """As in `Parcel`; built once for all nodes, by the first that sends it."""
        return self.command.packed or pack_once(self.command)

    @property
    def packed_in_full(self) -> bytes:
        """As in `Parcel`."""
        added = _added_to(self.command)
        return _packed((*words(self.command, in_full=True), *(b"",) * added))[: -added * len(_BLANK)]

    @property
    def script(self) -> Script | None:  # type: ignore[override]
        """As in `Parcel`."""
        return self.command.script

    @property
    def conditional(self) -> bool:  # type: ignore[override]
        """As in `Parcel`."""
        return self.command.proof is Proof.CONDITIONAL

    def hear(self, node: int, reply: Any, request_id: bytes, fail: Fail) -> bool:
        """As in `Parcel`."""
        command, receiver, index = self
        # A script's error becomes a MISFIT here, a plain command's stays an error.
        answer: Any = reply if command.script is None else without_request_id(reply, request_id)
        if answer is MISFIT or type(answer) is _ERROR or not command.fits(answer):
            return False
        receiver.on_reply(index, answer)
        return True

    def questions(self, node: int) -> Iterator[Question]:
        """As in `Parcel`."""
        yield self


# -- commands as bytes: packed once for all nodes, without precondition and request id (R12, R15) --------


def words(command: Command, *, in_full: bool = False) -> tuple[bytes, ...]:
    """Return a command without precondition and request id; a script by its digest, or `in_full`."""
    if in_full and command.script is not None:
        return (b"EVAL", command.script.source, b"%d" % len(command.keys), *command.keys, *command.args)
    return (*_head(command.verb, command.script, command.keys), *command.args)


def _head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the beginning of a command: all but its arguments."""
    assert bool(verb) != (script is not None), "a command is either a verb or a script"
    if script is None:
        return (verb, *keys)
    return (b"EVALSHA", script.digest, b"%d" % len(keys), *keys)


def pack_once(command: Command) -> bytes:
    """Pack a command for all nodes; its length counts the precondition and request id of each connection."""
    # Others than those of locks may name many keys, which are not worth keeping.
    looks = command.purpose is Purpose.OTHER
    head = _packed_head.__wrapped__ if looks else _packed_head
    count, begins = head(command.verb, command.script, command.keys)
    args = command.args
    count += len(args) + (0 if command.script is None else _added_to(command))
    command.packed = b"*%d\r\n%b%b" % (count, begins, _packed(args).partition(b"\r\n")[2])
    return command.packed


@lru_cache(maxsize=MAX_HEADS)
def _packed_head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[int, bytes]:
    """Return the number of words in the beginning of a command, and these words, packed."""
    begins = _head(verb, script, keys)
    return len(begins), _packed(begins).partition(b"\r\n")[2]


def _added_to(script: Command) -> int:
    """Return how many arguments a connection adds to a script's own."""
    return PRECONDITION_SIZE + 1 if script.proof is Proof.CONDITIONAL else 1


def pack_precondition(arguments: tuple[bytes, ...]) -> bytes:
    """Return arguments as they stand at the end of a packed command."""
    assert len(arguments) == PRECONDITION_SIZE, "what the commands leave room for"
    return _packed(arguments).partition(b"\r\n")[2]


# -- the pipe ------------------------------------------------------------------------------------------


def limit_for(purpose: Purpose) -> int:
    """Return the number of unanswered commands below which one more with this purpose is taken."""
    return MAX_IN_FLIGHT + _RESERVED.get(purpose, 0)


class DesynchronisedError(Exception):
    """A reply that cannot belong to its request: nothing on this connection can be trusted."""


def without_request_id(reply: object, request_id: bytes) -> object:
    """Return a script's answer without its request id; `MISFIT` where the id is another one, or missing.

    An error has no id, so it is a `MISFIT` as well: the caller decides what an error means.
    """
    if type(reply) is not list or not reply or reply[0] != request_id:
        return MISFIT
    del reply[0]
    return reply[0] if len(reply) == 1 else reply


def takes_none(_parcels: Sequence[Parcel], _replies: int, _number: int) -> bool:
    """Stand for `Pipe.post` where parcels cannot be taken."""
    return False


@final
class Pipe:
    """The queue of one connection.

    `on_failure` is called for each error reply that is final, `on_output` when there are bytes
    to `take`, and `on_mismatch` when a reply cannot belong to its request.
    """

    def __init__(
        self,
        on_failure: Fail,
        on_output: Callable[[], None],
        on_mismatch: Callable[[DesynchronisedError], None],
    ) -> None:
        self._entries: deque[Parcel] = deque()  # each as often as it has replies
        self._number = 0  # the node's, for parcels
        self._out: list[bytes] = []
        self._room = MAX_IN_FLIGHT
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._unfinished = 0  # bytes that came since a reply was complete; 0: the parser has none
        self._on_failure = on_failure
        self._on_output = on_output
        self._on_mismatch = on_mismatch
        self.answered = 0
        self.on_notice: Callable[[bytes, object], None] = lambda _channel, _message: None
        """Called with a channel and a message that was published there."""
        self.precondition = NO_PRECONDITION
        """The precondition of every conditional command, packed: see `pack_precondition`."""
        self.expected = b""
        """The incarnation record that is expected behind plain acquires."""
        self.unresolved: Collection[bytes] = ()
        """The owners whose acquires an earlier connection may still execute: no parcels meanwhile (R5)."""
        self.write: Callable[[bytes], object] = _NOWHERE
        """Writes bytes to the server."""
        self.on_unwritten: Callable[[BaseException], None] = _NOWHERE
        """Called with the error when those of parcels could not be written."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, command: Command, receiver: Receiver, index: int) -> bool:
        """Queue `command`; False when there is no room for it, or the pipe is closed."""
        entries, out = self._entries, self._out
        if len(entries) >= self._room and not self._has_room(command):
            return False
        if not out:
            self._on_output()
        entries.append(Question(command, receiver, index))
        out.append(command.packed or pack_once(command))
        if command.script is not None:
            if command.proof is Proof.CONDITIONAL:
                out.append(self.precondition)
            # Of all commands that were ever put, the number of this one: `answered` when its turn comes.
            out.append(_REQUEST_ID_ARGUMENTS[(self.answered + len(entries)) % REQUEST_ID_COUNT])
        return True

    def post(self, parcels: Sequence[Parcel], replies: int, number: int) -> bool:
        """Write parcels, behind all that is queued; False if each lock has to be sent by itself.

        That is where there is no room, or an unanswered acquire may still be executed (R5).  `replies` is the
        parcels' number of replies.
        """
        entries, out = self._entries, self._out
        if self.unresolved or len(entries) + replies > self._room:
            return False
        self._number = number
        for parcel in parcels:
            out.append(parcel.packed)
            # Plain commands, each with a reply of its own; or one script for all locks, with one reply.
            if parcel.script is None:
                entries.extend(repeat(parcel, parcel.replies))
                if parcel.probed:
                    parcel.expect(number, self.expected)
            else:
                entries.append(parcel)
                if parcel.conditional:
                    out.append(self.precondition)
                out.append(_REQUEST_ID_ARGUMENTS[(self.answered + len(entries)) % REQUEST_ID_COUNT])
        data = b"".join(out)
        out.clear()
        try:
            self.write(data)
        except CONTAINED as error:  # it must not keep the other nodes from being asked
            self.on_unwritten(error)
        return True

    def _has_room(self, command: Command) -> bool:
        """Whether there is room beyond the common limit: releases and extensions have room of their own."""
        return bool(self._room) and len(self._entries) < limit_for(command.purpose)

    def close(self) -> None:
        """Refuse further commands; those that are queued wait for their replies, or for `abandon`."""
        self._room = 0

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return not self._room

    def take(self) -> bytes:
        """Return the bytes to be written now; of a closed pipe none."""
        data = b"".join(self._out) if self._room else b""
        self._out.clear()
        return data

    def feed(self, data: bytes) -> None:
        """Pass every complete reply among the server's bytes to its receiver.

        A reply that cannot belong to its request, or is no reply at all, is reported to `on_mismatch`.
        """
        # Given up, or closed by us: what comes now was answered by silence.
        if not self._room:
            return
        entries, at = self._entries, 0
        try:
            # Nothing is half read: as long as replies are the usual ones, there is nothing to parse.
            while entries and at < len(data) and not self._unfinished:
                entry = entries.popleft()
                self.answered += 1
                taken = -1
                try:
                    taken = entry.recognises(
                        self._number, data, at, REQUEST_IDS[self.answered % REQUEST_ID_COUNT]
                    )
                finally:
                    # Taken, or interrupted: plain commands have a place for each reply.
                    if taken and entry.replies > 1:
                        for _ in range(1, entry.replies):
                            entries.popleft()
                        self.answered += entry.replies - 1
                if not taken:
                    entries.appendleft(entry)
                    self.answered -= 1
                    break
                at += taken
            if at < len(data):
                self._parse(data[at:])
        except DesynchronisedError as error:
            self._on_mismatch(error)
        except BaseException:
            # The process is about to exit.  Replies to come would be taken for those that are lost here.
            self._on_mismatch(DesynchronisedError("reading a reply was interrupted"))
            raise

    def _parse(self, data: bytes) -> None:
        """Parse the server's bytes, and pass every complete reply to its receiver."""
        entries, gets, has_data = self._entries, self._reader.gets, self._reader.has_data
        unfinished = self._unfinished + len(data)
        self._reader.feed(data)
        more = True
        while more:
            try:
                reply = gets()
            except (hiredis.ProtocolError, TypeError) as error:  # TypeError: a map's key cannot be a key
                raise DesynchronisedError(f"the server's answer is not RESP: {error}") from error
            except MemoryError:
                raise DesynchronisedError(
                    "the server announces a reply that does not fit into memory"
                ) from None
            if reply is _NOTHING:
                break
            more = has_data()
            unfinished = int(more)
            # A message, say: no reply to a command.
            if type(reply) is PUSH and not self._confirms(reply):
                continue
            if not entries:
                raise DesynchronisedError("a reply came without a request")
            # It answers the oldest command, whatever it says; from here on that is only checked.
            entry = entries.popleft()
            self.answered += 1
            request_id = REQUEST_IDS[self.answered % REQUEST_ID_COUNT]
            if not entry.hear(self._number, reply, request_id, self._fail):
                self._misfit(entry, reply)
        self._unfinished = unfinished
        if unfinished > MAX_REPLY:
            raise DesynchronisedError(
                f"a reply has more than {MAX_REPLY} bytes, more than any of our commands can return"
            )

    def _confirms(self, push: list[object]) -> bool:
        """Whether a push is the answer to the oldest command; any other push is handled here."""
        kind = push[0] if push else None
        channel = push[1] if len(push) > 1 else None
        if kind == _MESSAGE and isinstance(channel, bytes) and not self.closed:
            self.on_notice(channel, push[-1])
        if not isinstance(kind, bytes) or kind not in _CONFIRMATIONS:
            return False
        # A confirmation: the oldest command must have asked for it.
        first = self._entries[0] if self._entries else None
        if isinstance(first, Question) and first.command.verb == _CONFIRMATIONS[kind]:
            return True
        raise DesynchronisedError(f"a push of kind {kind.decode()} confirms a command that was not sent")

    def _misfit(self, entry: Parcel, reply: object) -> None:
        """Handle a reply that is no answer: an error ends the commands, another answer the connection."""
        questions = list(entry.questions(self._number))
        # Another command's answer: a reply is missing, and the connection ends with this entry unanswered.
        if not isinstance(reply, _ERROR):
            self._entries.appendleft(entry)
            what = f"{len(questions)} locks" if len(questions) > 1 else repr(questions[0].command)
            raise DesynchronisedError(f"an answer of type {type(reply).__name__} cannot belong to {what}")
        message = str(reply)
        # All locks get this message: it must not show one lock's owner value to another.
        for question in questions:
            message = without_secrets(message, question.command)
        # Nothing of it was executed, since a right is missing for one of several names at least.  That is no
        # reason to refuse the others: each by itself.
        if len(questions) > 1 and message.startswith("NOPERM") and self._may_go_again(questions):
            questions = [question for question in questions if not self.put(*question)]
        # The server has forgotten the script.
        elif self._sent_in_full(entry, message):
            return
        for question in questions:
            self._fail(question, message)

    def _fail(self, question: Question, message: str) -> None:
        if self._sent_in_full(question, message):
            return
        self._on_failure(question, message)
        question.receiver.on_reply(question.node, Silence(without_secrets(message, question.command)))

    def _sent_in_full(self, entry: Parcel, error: str) -> bool:
        """Send a script that the server does not know once more, at the queue's end, now with its source.

        False where the `error` says something else, or it may not go again.
        """
        # After SCRIPT FLUSH, say; nothing was executed.
        unknown = entry.script is not None and error.startswith("NOSCRIPT")
        if not unknown or not self._may_go_again([*entry.questions(self._number)]):
            return False
        if not self._out:
            self._on_output()
        self._entries.append(entry)
        self._out.append(entry.packed_in_full)
        if entry.conditional:
            self._out.append(self.precondition)
        self._out.append(_REQUEST_ID_ARGUMENTS[(self.answered + len(self._entries)) % REQUEST_ID_COUNT])
        return True

    def _may_go_again(self, questions: Sequence[Question]) -> bool:
        """Whether commands that the server has not executed may be sent once more, at the queue's end.

        A release always.  Another command only while its round waits for it and no release of its
        owner is queued: behind that release it could set a key that was given up (R15).
        """
        others = [one for one in questions if one.command.purpose is not Purpose.RELEASE]
        waited_for = all(one.receiver.awaited for one in others)
        return not others or (waited_for and self._released().isdisjoint(one.command.owner for one in others))

    def _released(self) -> set[bytes]:
        """Return the owners whose releases are queued; all of a parcel have one purpose."""
        return {
            question.command.owner
            for entry in self._each_once()
            for question in takewhile(
                lambda one: one.command.purpose is Purpose.RELEASE, entry.questions(self._number)
            )
        }

    def _each_once(self) -> Iterator[Parcel]:
        """Return the queued entries; a batch of plain commands, which has many places, once."""
        return (next(same) for _, same in groupby(self._entries, id))

    def abandon(self) -> list[Question]:
        """Empty the queue and return the commands that were never answered, oldest first."""
        self.close()
        questions = [one for entry in self._each_once() for one in entry.questions(self._number)]
        self._entries.clear()
        self._out.clear()
        return questions
