"""The entries of a pipe: single commands, and parcels that stand for several (R15, R42)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from .._core.command import Command, Receiver, Script

Entry: TypeAlias = tuple[Command, Receiver, int]
"""A command in flight, the receiver of its reply, and the receiver's index for this node."""

Fail: TypeAlias = Callable[[Entry, str], None]
"""Called with a command that was answered by an error, and with the error."""


class Single(Receiver, Protocol):
    """One lock's part in a parcel."""

    @property
    def command(self) -> Command:
        """The same part as a command of its own."""


class Parcel(Protocol):
    """The commands of several locks, the same for all nodes (R42)."""

    @property
    def packed(self) -> bytes:
        """The bytes, without precondition and request id."""

    @property
    def packed_in_full(self) -> bytes:
        """The same with the script's source."""

    @property
    def script(self) -> Script | None:
        """The script; None for plain commands, which have no request id."""

    @property
    def conditional(self) -> bool:
        """Whether the precondition stands before the request id (R12)."""

    @property
    def replies(self) -> int:
        """How many replies it has from each node."""

    @property
    def rounds(self) -> Sequence[Single]:
        """The locks' parts: an error for the whole parcel concerns each of them."""

    @property
    def probed(self) -> bool:
        """Whether it reads the incarnation record: then `expect` is called (R12)."""

    def expect(self, node: int, incarnation: bytes) -> None:
        """Note the incarnation record that a node is expected to have when it is asked."""

    def take(self, node: int, reply: object, request_id: bytes, fail: Fail) -> bool:
        """Take a reply; False when it is no answer: an error of a script, or an answer to another command.

        A script's answer begins with `request_id` (R15).
        """
