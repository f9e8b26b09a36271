"""Whether a lock is still the one whose release was agreed to, and what came of deleting it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from .. import LockInspection, NodeInspection, PermitInspection, ReaderInspection

One: TypeAlias = tuple[str | None, float | None]
"""A holder: its label, and since when."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """The lock as it was shown, whose end was agreed to."""

    state: str
    holder: str | None
    since: float | None
    shared: bool
    """Whether readers have it."""
    readers: frozenset[One]
    more_readers: bool
    """Whether there were more than could be shown: the end of all of them was agreed to."""
    permits: frozenset[One]

    @classmethod
    def of(cls, lock: LockInspection) -> Agreed:
        """Return what is shown of a lock."""
        return cls(
            state=lock.state,
            holder=lock.holder,
            since=lock.since,
            shared=lock.shared,
            readers=frozenset(map(_one, lock.readers)),
            more_readers=lock.more_readers,
            permits=frozenset(map(_one, lock.permits)),
        )

    def covers(self, now: LockInspection) -> bool:
        """Whether it is still the lock of that holder, or of readers or permits that were all shown."""
        if self.permits and now.permits:
            return self.permits.issuperset(map(_one, now.permits))
        if self.shared and now.shared:
            return self.more_readers or self.readers.issuperset(map(_one, now.readers))
        shown = (self.shared, self.state, self.holder, self.since)
        return shown == (now.shared, now.state, now.holder, now.since)


def _one(each: ReaderInspection | PermitInspection) -> One:
    return each.holder, each.since


def gone(node: NodeInspection) -> bool:
    """Whether a node that was told to delete the key has done so, also where it was no lock."""
    return node.held is not None or node.wrong_type


def why_not(node: NodeInspection) -> str:
    """Return why it has not; empty when it has."""
    return "" if gone(node) else node.reason
