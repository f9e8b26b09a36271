"""The leases that a task has of one reentrant lock, counted; no I/O (R27)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from .._kinds.kind import Kind

MAX_DEPTH: Final = 100
"""Leases of one lock that its task may have at once: more would be an endless recursion."""


@final
@dataclass(slots=True)
class Count:
    """The leases that a task has of one lock, and the blocks that it is inside of."""

    asked: list[Kind]
    """The kind that each lease was asked for as; released leases are removed."""
    blocks: int = 0
    """How many blocks are open under them."""

    @property
    def full(self) -> bool:
        """Whether the task may have no further lease."""
        return len(self.asked) >= MAX_DEPTH

    def weaken(self, asked: Kind, weaker: Kind) -> None:
        """Note that a lease that was asked for as `asked` is content with `weaker` from now on.

        Raises:
            RuntimeError: another lease is not.
        """
        # All other leases must be content with it already: the lock is one for all of them.
        others = self.asked.copy()
        others.remove(asked)
        if any(kind is not weaker for kind in others):
            raise RuntimeError(
                "a write lease cannot be downgraded while its task has another lease of the lock that "
                "was requested for writing: release that one first"
            )
        self.asked = [*others, weaker]
