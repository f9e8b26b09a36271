"""Questions that stand beside others: for the record behind a plain vote (R12), and for leave to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from .._core.command import Command, Purpose, Receiver, Reply, Silence
from .._core.keyspace import QUEUE, mark_key
from .._core.quarantine import INCARNATION_CHANGED, ExpectedIncarnation

CHANGED: Final = Silence(INCARNATION_CHANGED)

_NO_ROOM: Final = Silence("its incarnation record could not be read: too many commands in flight")


@final
class Probe:
    """The sink of ``SET key owner NX PX ttl`` and of the ``GET`` of the incarnation record that follows it.

    The SET counts only if the incarnation record is still the expected one: then the node has not lost its
    memory before the SET.
    """

    __slots__ = ("_expected", "_first", "_receiver")

    def __init__(self, expected: ExpectedIncarnation, receiver: Receiver) -> None:
        self._expected = expected
        self._receiver = receiver
        self._first: list[Reply] = []

    def without_incarnation(self) -> None:
        """Note that there was no room to read the incarnation record: the SET does not count."""
        self._first.append(_NO_ROOM)

    @property
    def awaited(self) -> bool:
        """As the sink's."""
        return self._receiver.awaited

    def on_reply(self, node: int, reply: Reply) -> None:
        """Keep the first answer, and pass it on with the second."""
        if not self._first:
            self._first.append(reply)
            return
        first = self._first[0]
        if not isinstance(first, Silence):
            if isinstance(reply, Silence):
                first = reply
            elif reply != self._expected.incarnation:
                first = CHANGED
        self._receiver.on_reply(node, first)


@final
class WriteProbe:
    """The sink of `write_probe`, which hands its answer on."""

    __slots__ = ("_heard",)

    awaited = True

    def __init__(self, heard: Callable[[Reply], None]) -> None:
        self._heard = heard

    def on_reply(self, node: int, reply: Reply) -> None:
        """Hand it on."""
        self._heard(reply)


def write_probe(prefix: bytes) -> Command:
    """Build a write that changes nothing, which a server that refuses writes refuses.

    No lock has the empty name, so that the key is never there.  Where there is an record, the greeting asks.
    """
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=lambda reply: reply is None,
        keys=(mark_key(prefix, QUEUE, b""),),
        args=(b"", b"XX"),
        verb=b"SET",
    )
