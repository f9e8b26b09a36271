"""A lock that is released in spite of its holder: what was agreed to must still be so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from .overview import Overview, look

if TYPE_CHECKING:
    from .. import LockInspection, LockManager, NodeInspection, PermitInspection, ReaderInspection

One: TypeAlias = tuple[str | None, float | None]
"""A holder: its label, and since when."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """The lock as it was shown, whose end was agreed to."""

    state: str
    one: One
    readers: frozenset[One]
    more_readers: bool
    """Whether there were more than could be shown: the end of all of them was agreed to."""
    permits: frozenset[One]

    @classmethod
    def of(cls, lock: LockInspection) -> Agreed:
        """Return the agreement to what is shown of a lock."""
        return cls(
            state=lock.state,
            one=_one(lock),
            readers=frozenset(map(_one, lock.readers)),
            more_readers=lock.more_readers,
            permits=frozenset(map(_one, lock.permits)),
        )

    @classmethod
    def read(cls, body: dict[str, Any]) -> Agreed | None:
        """Return what a request of the page agrees to; None when it does not say so."""
        one = _read((body.get("holder"), body.get("since")))
        readers, permits = _read_all(body.get("readers")), _read_all(body.get("permits"))
        state = body.get("state")
        if not isinstance(state, str) or one is None or readers is None or permits is None:
            return None
        return cls(
            state=state, one=one, readers=readers, more_readers=body.get("more") is True, permits=permits
        )

    def covers(self, now: LockInspection) -> bool:
        """Whether it is still the lock of that holder, or of readers or permits that were all shown."""
        if self.permits and now.permits:
            return self.permits.issuperset(map(_one, now.permits))
        if self.readers and now.shared:
            return self.more_readers or self.readers.issuperset(map(_one, now.readers))
        of = bool(self.readers), bool(self.permits), self.state, self.one
        return of == (now.shared, bool(now.permits), now.state, _one(now))


def _one(each: LockInspection | ReaderInspection | PermitInspection) -> One:
    return each.holder, each.since


def _read_all(value: object) -> frozenset[One] | None:
    ones = [_read(each) for each in value] if isinstance(value, list) else [None]
    return None if None in ones else frozenset(one for one in ones if one is not None)


def _read(value: object) -> One | None:
    match value:
        case [str() | None as holder, int() | float() | None as since]:
            return holder, since
    return None


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a forced release."""

    lock: LockInspection
    """As it was found."""
    at: float = 0.0
    """When that was, in Unix seconds by the manager's clock."""
    refused: Literal["", "too few", "free", "changed"] = ""
    """Why it was left alone, in a word; empty when the nodes were asked to delete it."""
    detail: str = ""
    """The same as a sentence."""
    nodes: Sequence[NodeInspection] = ()
    """The answer of each node to the deletion."""

    @property
    def deleted(self) -> int:
        """The number of nodes that have deleted it, or did not have it."""
        return sum(map(gone, self.nodes))

    @property
    def done(self) -> bool:
        """Whether a majority has."""
        return self.deleted > len(self.nodes) // 2


async def release(manager: LockManager, name: str, shown: Agreed | None = None) -> Outcome:
    """Delete a lock on all nodes if it is still as it was shown; None: whatever it is.

    Raises:
        ConfigurationError, LockError, ValueError: as `LockManager.force_release`.
    """
    from .. import ConfigurationError

    seen = await look(manager, (name,))
    if seen.survey is None:
        raise ConfigurationError(seen.problem)
    ((lock,), at) = seen.survey.locks, seen.survey.at
    if few := too_few(seen):
        return Outcome(lock=lock, at=at, refused="too few", detail=few)
    if lock.state == "free":
        return Outcome(lock=lock, at=at, refused="free", detail="the lock is free: nothing was changed")
    if shown is not None and not shown.covers(lock):
        detail = "the lock has changed hands meanwhile: nothing was changed"
        return Outcome(lock=lock, at=at, refused="changed", detail=detail)
    return Outcome(lock=lock, at=at, nodes=await manager.force_release(name))


def too_few(seen: Overview) -> str:
    """Return why the locks that were looked at are not released; empty: a majority has answered."""
    few = f"{seen.answered} of {len(seen.nodes)} nodes answered, {seen.quorum} are needed"
    return f"{few}: nothing was changed" if seen.answered < seen.quorum else ""


def gone(node: NodeInspection) -> bool:
    """Whether a node that was asked to delete the key has done so, also where it was no lock."""
    return node.held is not None or node.wrong_type
