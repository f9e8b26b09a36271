"""Whether a lock is still the one whose release was agreed to, and what came of deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import LockInspection, NodeInspection


def as_agreed(shown: LockInspection, now: LockInspection) -> bool:
    """Whether the lock is that of the holder that was shown, or of readers that were all shown.

    Where more read than can be shown, the end of all of them was agreed to.
    """
    if shown.permits and now.permits:
        seen = {(permit.holder, permit.since) for permit in shown.permits}
        return all((permit.holder, permit.since) in seen for permit in now.permits)
    if not (shown.shared and now.shared):
        return _holder(shown) == _holder(now)
    known = {(reader.holder, reader.since) for reader in shown.readers}
    return shown.more_readers or all((reader.holder, reader.since) in known for reader in now.readers)


def _holder(lock: LockInspection) -> tuple[object, ...]:
    """Return what tells one holder's lock from another's."""
    return lock.shared, lock.state, lock.holder, lock.since


def gone(node: NodeInspection) -> bool:
    """Whether a node that was told to delete the key has done so, also where it was no lock."""
    return node.held is not None or node.wrong_type


def why_not(node: NodeInspection) -> str:
    """Return why it has not; empty when it has."""
    return "" if gone(node) else node.reason
