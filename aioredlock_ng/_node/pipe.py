"""The pipe, without I/O: commands in → bytes out; bytes in → replies to whoever waits (rule R15).

Redis answers the commands of one connection in the order in which they came, so a first-in-first-
out queue of sinks is all it takes to match replies with requests.  A caller that stops waiting
leaves its entry in the queue; the late reply is read, handed over and ignored there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

import hiredis

from .._core.command import STAMP_SIZE, Command, Proof, Purpose, Reply, Silence, Sink
from .failures import without_secrets

MAX_IN_FLIGHT: Final = 8192
"""Commands of one node that may be unanswered at once; beyond it nodes are SILENT (backlog)."""

RESERVED_FOR_RELEASES: Final = 8192
"""Room on top of `MAX_IN_FLIGHT` that only releases may use."""

_BLANK: Final = b"$0\r\n\r\n"
"""An empty argument in RESP: keeps a stamp's place in a packed command's count of arguments."""

_NOTHING: Final = object()
"""What the parser returns when no reply is complete (its default, False, is a RESP3 value)."""


class DesynchronisedError(Exception):
    """A reply that cannot belong to its request: nothing on this connection can be trusted."""


class Entry(NamedTuple):
    """A command that waits for its reply, and the sink's number for this node."""

    command: Command
    sink: Sink
    node: int


@final
class Pipe:
    """The queue of one connection.  `on_failure` hears of every error reply, with its entry."""

    __slots__ = ("_entries", "_on_failure", "_out", "_reader", "answered", "stamp")

    def __init__(self, on_failure: Callable[[Entry, str], None]) -> None:
        self._entries: deque[Entry] = deque()
        self._out: list[bytes] = []
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._on_failure = on_failure
        self.answered = 0
        self.stamp = _BLANK * STAMP_SIZE
        """What stands behind every stamped command, packed: see `pack_stamp`."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, command: Command, sink: Sink, index: int) -> bool:
        """Queue `command`; False when there is no room for it."""
        room = MAX_IN_FLIGHT
        if command.purpose is Purpose.RELEASE:
            room += RESERVED_FOR_RELEASES
        if len(self._entries) >= room:
            return False
        self._entries.append(Entry(command, sink, index))
        self._write(command, command.packed or _pack_once(command))
        return True

    def _write(self, command: Command, packed: bytes) -> None:
        self._out.append(packed)
        if command.proof is Proof.STAMPED:
            self._out.append(self.stamp)

    def take(self) -> bytes:
        """Return the bytes to be written now."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def feed(self, data: bytes) -> None:
        """Parse what the server sent and hand over every complete reply.

        Raises:
            DesynchronisedError: when a reply cannot belong to its request, or is no reply at all.
        """
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOTHING:
                self._answer(reply)
        except hiredis.ProtocolError as error:
            raise DesynchronisedError(f"the server's answer is not RESP: {error}") from error

    def _answer(self, reply: Reply | hiredis.ReplyError) -> None:
        if not self._entries:
            raise DesynchronisedError("an answer came that nothing was asked for")
        entry = self._entries.popleft()
        self.answered += 1
        if isinstance(reply, hiredis.ReplyError):
            self._fail(entry, str(reply))
        elif entry.command.fits(reply):
            entry.sink.on_reply(entry.node, reply)
        else:
            self._entries.appendleft(entry)  # it is still unanswered
            raise DesynchronisedError(
                f"an answer of type {type(reply).__name__} cannot belong to {entry.command!r}"
            )

    def _fail(self, entry: Entry, message: str) -> None:
        command = entry.command
        if message.startswith("NOSCRIPT") and self._may_go_again(entry):
            self._entries.append(entry)
            self._write(command, _pack(command, command.words_in_full))
            return
        self._on_failure(entry, message)
        entry.sink.on_reply(entry.node, Silence(without_secrets(message, command)))

    def _may_go_again(self, entry: Entry) -> bool:
        """Whether a script that the server did not know may be sent once more, at the queue's end.

        A release always.  Anything else only while its round waits for it and no release of its
        owner is queued: behind that release it could bring back what was given up (R15).
        """
        command = entry.command
        if command.purpose is Purpose.RELEASE:
            return True
        return entry.sink.pending and not any(
            other.command.owner == command.owner and other.command.purpose is Purpose.RELEASE
            for other in self._entries
        )

    def abandon(self) -> list[Entry]:
        """Empty the queue and return what was never answered, oldest first."""
        entries = list(self._entries)
        self._entries.clear()
        self._out.clear()
        return entries


def _pack_once(command: Command) -> bytes:
    """Pack a command for all nodes; what each of them adds is not in it."""
    command.packed = _pack(command, command.words)
    return command.packed


def _pack(command: Command, words: tuple[bytes, ...]) -> bytes:
    if command.proof is Proof.STAMPED:
        return _packed((*words, *(b"",) * STAMP_SIZE))[: -STAMP_SIZE * len(_BLANK)]
    return _packed(words)


def pack_stamp(arguments: tuple[bytes, ...]) -> bytes:
    """Return arguments as they stand at the end of a packed command."""
    assert len(arguments) == STAMP_SIZE, "what the commands leave room for"
    return _packed(arguments).partition(b"\r\n")[2]


def _packed(words: tuple[bytes, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # the stub says a tuple of one
    return packed
