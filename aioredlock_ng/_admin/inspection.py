"""A lock as one node has it: its holder, its readers or its permits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from .._core.command import WRONG_TYPE
from .._core.owner import KEPT
from .._kinds import KINDS
from .._kinds.answers import seconds
from .._kinds.kind import Holder
from .._kinds.read_write import READ
from .look import KeyEntry

MAX_READERS: Final = 100
"""Readers of one lock that a node is asked for, those that stay longest; of more it only says that there are
more."""


_NAME_OF_LETTER: Final[Mapping[bytes | None, str]] = {
    **{kind.letter: kind.name for kind in KINDS},
    KEPT: "kept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderInspection:
    """One reader of a read-write lock, as a node has it, or as several do."""

    holder: str | None
    """The holder label; None when it is another program's."""
    since: float | None = None
    """When it asked for the lock, in Unix seconds by its own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until it is free again unless it is extended: on this node, or on a majority of them; of one
    that no majority has, on any."""
    ours: bool = False
    """Whether it is a lease of this manager."""
    held_by: int = 1
    """The number of nodes that have it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PermitInspection(ReaderInspection):
    """One permit of a semaphore that is held, as a node has it, or as several do."""

    slot: int
    """Its number, from 0 on: as `Lease.slot`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInspection:
    """The holders under a lock's name on one node."""

    node: str
    held: bool | None
    """None when the node did not answer."""
    ours: bool = False
    """Whether a lease of this manager holds it; of `more_readers` than are named, one of those that are."""
    holder: str | None = None
    """The holder label, of readers that of the one that stays longest, of a semaphore's permits that of the
    first; None when the key is free or another program's."""
    since: float | None = None
    """When that holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until the key expires; None when it is free or has no expiry."""
    reason: str = ""
    """Why the node did not answer."""
    kind: str | None = None
    """The sort of lock by what the holder wrote: ``"mutex"``, ``"fair"``, ``"write"``, ``"leader"``;
    ``"read"`` where readers are, ``"semaphore"`` where permits are held; ``"kept"`` when the holder has
    released it, and it stays taken for the rest of its `at_least`.  None when the key is free or another
    program's."""
    readers: tuple[ReaderInspection, ...] = ()
    """The readers that have it, those first that stay longest; empty when one holder has it alone."""
    more_readers: bool = False
    """Whether there are more than the 100 in `readers`."""
    permits: tuple[PermitInspection, ...] = ()
    """The permits of a semaphore that are held, by their slots; empty of any other lock."""
    fence_counter: int | None = None
    """Where the node's counter of the name's fences stands, while a holder or readers have the name (R10).

    By itself it does not tell the holder's fence: this node may be behind the others, or ahead of them; see
    `LockInspection.highest_fence`.  None without a counter, and of semaphores, whose slots have one each.
    """

    @property
    def wrong_type(self) -> bool:
        """Whether something else than a lock is under the key, in the way of one.

        `held` is None then, and `reason` is the server's error.
        """
        return self.reason.startswith(WRONG_TYPE)


def holders_in(entry: KeyEntry) -> tuple[Holder, ...] | None:
    """Return the holders that a node has under a key, as the key's kind reads it; None: it tells nothing.

    A value that is a string is that of one holder, which stays as long as the key.
    """
    if isinstance(entry, str):
        return None
    found, left_ms, _ = entry
    if found is None:
        return ()
    for kind in KINDS:
        holders = kind.read_key(found, left_ms)
        if holders is not None:
            return holders
    return (Holder(owner=cast("bytes", found), ttl=seconds(left_ms)),)  # another program's


def count_in(stored: bytes | None) -> int | None:
    """Return what a counter has; None where there is none, or another program's."""
    return int(stored) if stored is not None and stored.isdigit() else None


def kind_of(holder: Holder) -> str | None:
    """Return what sort of lock it is that a holder has; None: another program's."""
    return READ.name if holder.reads else _NAME_OF_LETTER.get(holder.letter)


def inspection_of(
    node: str, entry: KeyEntry, holders: tuple[Holder, ...] | None, owners: set[bytes]
) -> NodeInspection:
    """Say what a node has, of these holders; their owner values are secrets that stay here."""
    if isinstance(entry, str) or holders is None:
        return NodeInspection(node=node, held=None, reason=str(entry))
    if not holders:
        return NodeInspection(node=node, held=False)
    first, readers = holders[0], [holder for holder in holders if holder.reads]

    def facts(holder: Holder) -> dict[str, Any]:
        ours = holder.owner in owners
        return {"holder": holder.label, "since": holder.since, "ttl": holder.ttl, "ours": ours}

    return NodeInspection(
        node=node,
        held=True,
        **facts(first) | {"ours": any(holder.owner in owners for holder in holders)},
        kind=kind_of(first),
        readers=tuple(ReaderInspection(**facts(reader)) for reader in readers[:MAX_READERS]),
        more_readers=len(readers) > MAX_READERS,
        permits=tuple(
            PermitInspection(slot=each.slot, **facts(each)) for each in holders if each.slot is not None
        ),
        fence_counter=count_in(entry[2]),
    )
