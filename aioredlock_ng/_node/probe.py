"""Two extra checks: of the incarnation record behind a plain vote (R12), and of the right to write."""

from __future__ import annotations

from typing import Final, final

from .._core.command import Command, Purpose, Receiver, Reply, Silence
from .._core.keyspace import QUEUE, mark_key
from .._core.quarantine import INCARNATION_CHANGED

CHANGED: Final = Silence(INCARNATION_CHANGED)

NO_ROOM: Final = Silence("its incarnation record could not be read: too many commands in flight")


@final
class Probe:
    """Receives the answers to ``SET key owner NX PX ttl`` and to ``GET`` of the incarnation record behind it.

    The SET counts only if the incarnation record is still the expected one: then the node has not lost its
    memory before the SET.
    """

    __slots__ = ("_expected", "_first", "_receiver")

    def __init__(self, expected: bytes, receiver: Receiver) -> None:
        self._expected = expected
        self._receiver = receiver
        self._first: list[Reply] = []

    @property
    def awaited(self) -> bool:
        """As that of the receiver."""
        return self._receiver.awaited

    def on_reply(self, node: int, reply: Reply) -> None:
        """Keep the first answer, and pass it on when the second has come."""
        if not self._first:
            self._first.append(reply)
            return
        # A SET that was answered counts if the GET was, too, and showed the expected record.
        first = self._first[0]
        if not isinstance(first, Silence):
            if isinstance(reply, Silence):
                first = reply
            elif reply != self._expected:
                first = CHANGED
        self._receiver.on_reply(node, first)


def write_probe(prefix: bytes) -> Command:
    """Build a write that changes nothing; a server that refuses writes answers it with an error.

    No lock has the empty name, so the key never exists.  Where there is an incarnation record, the greeting
    checks that instead.
    """
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: reply is None,
        keys=(mark_key(prefix, QUEUE, b""),),
        args=(b"", b"XX"),
        verb=b"SET",
    )
