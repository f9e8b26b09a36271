"""The pipe, without I/O: commands in → bytes out; bytes in → replies to their callers (rule R15).

Redis answers the commands of one connection in the order in which they came, so a first-in-first-
out queue of sinks is all it takes to match replies with requests.  A caller that stops waiting
leaves its entry in the queue; the late reply is read, handed over and ignored there.

What RESP3 *pushes* comes anywhere between the replies and belongs to none of them, with one exception:
a command that (un)subscribes has no other answer than a push, which comes in its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias, final

import hiredis

from .._core.command import STAMP_SIZE, Command, Proof, Purpose, Script, Silence, Sink
from .failures import without_secrets

MAX_IN_FLIGHT: Final = 8192
"""Commands of one node that may be unanswered at once; beyond it nodes are SILENT (backlog)."""

RESERVED_FOR_RELEASES: Final = 8192
"""Room on top of `MAX_IN_FLIGHT` that only releases and extensions may use."""

RESERVED_FOR_EXTENSIONS: Final = 8192
"""Room on top of that, which only extensions and top-ups may use: no burst of others costs a held lease."""

_RESERVED: Final = {
    Purpose.RELEASE: RESERVED_FOR_RELEASES,
    Purpose.EXTEND: RESERVED_FOR_RELEASES + RESERVED_FOR_EXTENSIONS,
    Purpose.TOP_UP: RESERVED_FOR_RELEASES + RESERVED_FOR_EXTENSIONS,
}

MAX_REPLY: Final = 8 * 2**20
"""Bytes that may come without completing a reply.  Only the answer to a SCAN is ever longer than a few
kilobytes: one megabyte with the longest of names."""

MAX_HEADS: Final = 4096
"""Beginnings of commands that are kept packed: a lock's key is asked for again and again."""

_BLANK: Final = b"$0\r\n\r\n"
"""An empty argument in RESP: keeps a stamp's place in a packed command's count of arguments."""

TAGS: Final = tuple(b"%03d" % number for number in range(1000))
"""What tells a connection's scripts apart: each is given the next of these as its last argument, and begins
its answer with it.  So a reply that went missing shows in the one behind it (R15), unless a thousand went.

They follow the places of commands on a connection, not owners: an acquire and its release, two extensions, a
release and its repetition from the ledger have different ones, though they have an owner in common."""

MISFIT: Final = object()
"""Stands in for what is no answer to a script's request: another's answer, or an error, which has no tag.  No
command's `fits` is asked about it."""

_TAG_ARGUMENTS: Final = tuple(b"$%d\r\n%b\r\n" % (len(tag), tag) for tag in TAGS)
"""The tags as they stand at the end of a packed command."""

_packed: Final[Callable[[tuple[bytes, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]

_NOTHING: Final = object()
"""What the parser returns when no reply is complete (its default, False, is a RESP3 value)."""

_MESSAGE: Final = b"message"

_CONFIRMATIONS: Final = {b"subscribe": b"SUBSCRIBE", b"unsubscribe": b"UNSUBSCRIBE"}
"""Kinds of pushes that answer a command, and which."""

PUSH: Final = hiredis.PushNotification
"""What RESP3 pushes: a list of a type of its own."""

_ERROR: Final = hiredis.ReplyError
"""What an error reply is parsed into."""


def limit_for(purpose: Purpose) -> int:
    """Return how many commands may be unanswered at once for one more with this purpose to be taken."""
    return MAX_IN_FLIGHT + _RESERVED.get(purpose, 0)


class DesynchronisedError(Exception):
    """A reply that cannot belong to its request: nothing on this connection can be trusted."""


Entry: TypeAlias = tuple[Command, Sink, int]
"""A command under way, the sink that waits for its reply, and the sink's number for this node.  A plain
tuple: there are ten in every cycle."""


def untagged(reply: object, tag: bytes) -> object:
    """Return what a script answered behind its tag; `MISFIT` where that is not `tag`, or there is none.

    An error has none, so it is a `MISFIT` as well: what errors mean is the caller's to say.
    """
    if type(reply) is not list or not reply or reply[0] != tag:
        return MISFIT
    del reply[0]
    return reply[0] if len(reply) == 1 else reply


@final
class Pipe:
    """The queue of one connection.

    `on_failure` hears of every error reply that is final, with its entry; `on_output` when there is something
    to `take`.
    """

    __slots__ = (
        "__weakref__",
        "_entries",
        "_on_failure",
        "_on_output",
        "_out",
        "_reader",
        "_room",
        "_unfinished",
        "answered",
        "on_notice",
        "stamp",
    )

    def __init__(self, on_failure: Callable[[Entry, str], None], on_output: Callable[[], None]) -> None:
        self._entries: deque[Entry] = deque()
        self._out: list[bytes] = []
        self._room = MAX_IN_FLIGHT
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._unfinished = 0  # bytes that came since a reply was complete
        self._on_failure = on_failure
        self._on_output = on_output
        self.answered = 0
        self.on_notice: Callable[[bytes, object], None] = lambda _channel, _message: None
        """Called with a channel and what was published there."""
        self.stamp = _BLANK * STAMP_SIZE
        """What stands behind every stamped command, packed: see `pack_stamp`."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, command: Command, sink: Sink, index: int) -> bool:
        """Queue `command`; False when there is no room for it, or the pipe is closed."""
        entries, out = self._entries, self._out
        if len(entries) >= self._room and not self._has_room(command):
            return False
        if not out:
            self._on_output()
        entries.append((command, sink, index))
        out.append(command.packed or _pack_once(command))
        if command.script is not None:
            if command.proof is Proof.STAMPED:
                out.append(self.stamp)
            # Of all commands that were ever put, the number of this one: `answered` when its turn comes.
            out.append(_TAG_ARGUMENTS[(self.answered + len(entries)) % len(TAGS)])
        return True

    def _has_room(self, command: Command) -> bool:
        """Whether there is room beyond that for all: releases and extensions have some of their own."""
        return bool(self._room) and len(self._entries) < limit_for(command.purpose)

    def close(self) -> None:
        """Take nothing more; what is queued keeps waiting for its replies, or for `abandon`."""
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
        """Parse what the server sent and hand over every complete reply.

        Raises:
            DesynchronisedError: when a reply cannot belong to its request, or is no reply at all.
        """
        entries, gets = self._entries, self._reader.gets
        unfinished = self._unfinished + len(data)
        self._reader.feed(data)
        while True:
            try:
                reply = gets()
            except (hiredis.ProtocolError, TypeError) as error:  # TypeError: a map's key that cannot be a key
                raise DesynchronisedError(f"the server's answer is not RESP: {error}") from error
            except MemoryError:
                raise DesynchronisedError("the server announces a reply that memory cannot hold") from None
            if reply is _NOTHING:
                break
            unfinished = 0
            if type(reply) is PUSH and not self._confirms(reply):
                continue
            if not entries:
                raise DesynchronisedError("a reply came without a request")
            entry = entries.popleft()
            self.answered += 1
            command, sink, node = entry
            answer = reply  # or an error: a script's is a MISFIT then, a plain command's is still one
            if command.script is not None:
                answer = untagged(reply, TAGS[self.answered % len(TAGS)])
            if answer is not MISFIT and type(answer) is not _ERROR and command.fits(answer):
                sink.on_reply(node, answer)
            else:
                self._misfit(entry, reply)
        self._unfinished = unfinished
        if unfinished > MAX_REPLY:
            raise DesynchronisedError(f"a reply of more than {MAX_REPLY} bytes answers none of our commands")

    def _confirms(self, push: list[object]) -> bool:
        """Whether a push is the answer to the oldest command; any other is dealt with here."""
        kind = push[0] if push else None
        channel = push[1] if len(push) > 1 else None
        if kind == _MESSAGE and isinstance(channel, bytes) and not self.closed:
            self.on_notice(channel, push[-1])
        if not isinstance(kind, bytes) or kind not in _CONFIRMATIONS:
            return False
        if self._entries and self._entries[0][0].verb == _CONFIRMATIONS[kind]:
            return True
        raise DesynchronisedError(f"a push of kind {kind.decode()} confirms a command that was not sent")

    def _misfit(self, entry: Entry, reply: object) -> None:
        """Take what is no answer to `entry`: an error ends it, another command's answer the connection."""
        if isinstance(reply, _ERROR):
            self._fail(entry, str(reply))
        else:
            self._entries.appendleft(entry)  # it is still unanswered
            raise DesynchronisedError(
                f"an answer of type {type(reply).__name__} cannot belong to {entry[0]!r}"
            )

    def _fail(self, entry: Entry, message: str) -> None:
        command, sink, node = entry
        lacking = command.script is not None and message.startswith("NOSCRIPT")
        if lacking and self._may_go_again(command, sink):
            if not self._out:
                self._on_output()
            self._entries.append(entry)
            self._out.append(_pack_in_full(command))
            if command.proof is Proof.STAMPED:
                self._out.append(self.stamp)
            self._out.append(_TAG_ARGUMENTS[(self.answered + len(self._entries)) % len(TAGS)])
            return
        self._on_failure(entry, message)
        sink.on_reply(node, Silence(without_secrets(message, command)))

    def _may_go_again(self, command: Command, sink: Sink) -> bool:
        """Whether a script that the server did not know may be sent once more, at the queue's end.

        A release always.  Anything else only while its round waits for it and no release of its
        owner is queued: behind that release it could bring back what was given up (R15).
        """
        if command.purpose is Purpose.RELEASE:
            return True
        return sink.pending and not any(
            other.owner == command.owner and other.purpose is Purpose.RELEASE for other, _, _ in self._entries
        )

    def abandon(self) -> list[Entry]:
        """Empty the queue and return what was never answered, oldest first."""
        self.close()
        entries = list(self._entries)
        self._entries.clear()
        self._out.clear()
        return entries


def words(command: Command, *, in_full: bool = False) -> tuple[bytes, ...]:
    """Return a command without stamp and tag; a script by its digest, or `in_full`."""
    if in_full and command.script is not None:
        return (b"EVAL", command.script.source, b"%d" % len(command.keys), *command.keys, *command.args)
    return (*_head(command.verb, command.script, command.keys), *command.args)


def _head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return what a command begins with: all but its arguments."""
    assert bool(verb) != (script is not None), "a command is either a verb or a script"
    if script is None:
        return (verb, *keys)
    return (b"EVALSHA", script.digest, b"%d" % len(keys), *keys)


def _pack_once(command: Command) -> bytes:
    """Pack a command for all nodes; what a connection adds, stamp and tag, is counted but not in it."""
    count, begins = _packed_head(command.verb, command.script, command.keys)
    args = command.args
    count += len(args) + (0 if command.script is None else _added_to(command))
    command.packed = b"*%d\r\n%b%b" % (count, begins, _packed(args).partition(b"\r\n")[2])
    return command.packed


@lru_cache(maxsize=MAX_HEADS)
def _packed_head(verb: bytes, script: Script | None, keys: tuple[bytes, ...]) -> tuple[int, bytes]:
    """Return how many words a command begins with that is sent again and again, and these words, packed."""
    begins = _head(verb, script, keys)
    return len(begins), _packed(begins).partition(b"\r\n")[2]


def _added_to(script: Command) -> int:
    """Return how many arguments a connection adds to a script's own."""
    return STAMP_SIZE + 1 if script.proof is Proof.STAMPED else 1


def _pack_in_full(command: Command) -> bytes:
    """Pack a script with its source, and without what a connection adds."""
    added = _added_to(command)
    return _packed((*words(command, in_full=True), *(b"",) * added))[: -added * len(_BLANK)]


def pack_stamp(arguments: tuple[bytes, ...]) -> bytes:
    """Return arguments as they stand at the end of a packed command."""
    assert len(arguments) == STAMP_SIZE, "what the commands leave room for"
    return _packed(arguments).partition(b"\r\n")[2]
