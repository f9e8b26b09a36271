"""The sink of a repair (rule R9)."""

from __future__ import annotations

from typing import Protocol, final

from .._core.command import Reply


class Held(Protocol):
    """The lease whose keys a node is given back."""

    @property
    def held(self) -> bool:
        """Whether the lock is ours."""


@final
class Repair:
    """Its answer is of no consequence: the next extension asks again."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Held) -> None:
        self._lease = lease

    @property
    def awaited(self) -> bool:
        """A repair goes out again only while the lease is held."""
        return self._lease.held

    def on_reply(self, node: int, reply: Reply) -> None:
        """Nothing to do."""
