"""The receiver of the answer to a repair (rule R9)."""

from __future__ import annotations

from typing import Protocol, final

from .._core.command import Reply


class Held(Protocol):
    """The lease whose keys are set again on a node."""

    @property
    def held(self) -> bool:
        """Whether the lock is ours."""


@final
class Repair:
    """Ignores the answer: the next extension checks the node again."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Held) -> None:
        self._lease = lease

    @property
    def awaited(self) -> bool:
        """A repair goes out again only while the lease is held."""
        return self._lease.held

    def on_reply(self, node: int, reply: Reply) -> None:
        """Do nothing."""
