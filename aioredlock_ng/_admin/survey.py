"""Looking at all locks from outside: which there are, and what the nodes hold under each."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, cast, final

import anyio

from .._core.command import Command, Purpose, Silence
from .._core.keyspace import is_lock
from .._core.quorum import majority
from .._core.rights import glob_escaped
from .._kinds import KINDS
from .._kinds.kind import Holder, Kind
from .._kinds.read_write import READ
from .inspection import (
    MAX_READERS,
    NodeInspection,
    PermitInspection,
    ReaderInspection,
    ask,
    holders_in,
    inspection_of,
    inspections,
    look,
    owners_of,
)

if TYPE_CHECKING:
    from .._node import Node
    from .._session.runtime import Runtime

SCAN_COUNT: Final = 500
"""Keys that a node looks at for one SCAN: a fraction of a millisecond of its time."""

SCAN_TIME: Final = 5.0
"""Seconds that all nodes are searched for locks, at most."""

INSPECTED_AT_ONCE: Final = 8
"""Locks that are asked for at the same time: a client node takes a connection of its pool for each, and
locks need some, too."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LockInspection:
    """What all nodes hold under one lock's name."""

    name: str
    """Bytes of a key that are not UTF-8 stand in it as lone surrogates (PEP 383)."""
    nodes: tuple[NodeInspection, ...]
    agreed: tuple[NodeInspection, ...]
    """The nodes that have the same holder, and what they have of it: of several such groups the largest."""
    readers: tuple[ReaderInspection, ...] = ()
    """The readers that any node has, those first that most nodes have, and then those that stay longest."""
    more_readers: bool = False
    """Whether there are more than the 100 in `readers`."""
    permits: tuple[PermitInspection, ...] = ()
    """The permits of a semaphore that any node has as held, by their slots; of a slot that which most nodes
    have comes first."""

    @property
    def shared(self) -> bool:
        """Whether readers hold it, and not one holder alone."""
        return any(node.readers for node in self.agreed)

    @property
    def kind(self) -> str | None:
        """What sort of lock it is: as `NodeInspection.kind`."""
        return READ.name if self.shared else self.agreed[0].kind if self.agreed else None

    @property
    def held_by(self) -> int:
        """How many nodes agree on one holder; of readers or permits, on the one that most nodes have."""
        return len(self.agreed)

    @property
    def state(self) -> Literal["held", "partial", "unknown", "free"]:
        """What they come to.

        ``held``: a majority agrees, on at least one where there are readers, or permits.  ``partial``: none
        does or could: what a holder left on some nodes, a try under way, or a key that is no lock.
        ``unknown``: it depends on nodes that did not answer, or did not name all readers.
        """
        quorum = majority(len(self.nodes))
        if self.held_by >= quorum:
            return "held"
        agreed = {node.node for node in self.agreed}
        unseen = sum(_silent(each) or (each.more_readers and each.node not in agreed) for each in self.nodes)
        if self.held_by + unseen >= quorum:
            return "unknown"
        return "free" if all(node.held is False or _silent(node) for node in self.nodes) else "partial"

    @property
    def holder(self) -> str | None:
        """What the holder, or one of the readers, calls itself; None: it is free, or another program's."""
        return self.agreed[0].holder if self.agreed else None

    @property
    def since(self) -> float | None:
        """When that holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
        return self.agreed[0].since if self.agreed else None

    @property
    def ttl(self) -> float | None:
        """Seconds until no majority holds it any more; of a partial one, until its last key is gone.

        None when nothing is held, or has no expiry.
        """
        quorum = majority(len(self.nodes))
        ttl = _stays(self.agreed, quorum)
        shared: tuple[ReaderInspection | PermitInspection, ...] = (*self.readers, *self.permits)
        others = (each.ttl for each in shared if each.held_by >= quorum)
        return None if ttl is None else max([ttl, *(other for other in others if other is not None)])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SilentNode:
    """A node that could not be asked, or not for everything."""

    node: str
    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The locks that were found, by name."""

    locks: tuple[LockInspection, ...]
    truncated: bool
    """Whether there may be more: the limit or the time was reached."""
    silent: tuple[SilentNode, ...]
    """Nodes whose part of the picture is missing."""
    at: float
    """When it was made, in Unix seconds by this manager's clock."""


async def survey(
    runtime: Runtime, prefix: bytes, keys: Sequence[bytes], limit: int, kinds: Sequence[Kind] = KINDS
) -> Survey:
    """Look at `keys`; without any, at those of every lock that a node has, `limit` of them at most."""
    search = _Search(prefix, limit)
    if not keys:
        await search.run_on_all(runtime)
    locks = await _inspect(runtime, prefix, keys or sorted(search.found), kinds)
    return Survey(
        locks=tuple(lock for lock in locks if keys or lock.state != "free"),  # some have ended meanwhile
        truncated=search.truncated,
        silent=_all_silent(runtime.nodes, search.failed, locks),
        at=runtime.wall(),
    )


async def _inspect(
    runtime: Runtime, prefix: bytes, keys: Sequence[bytes], kinds: Sequence[Kind]
) -> list[LockInspection]:
    """Ask all nodes for all `keys`, some at a time."""
    owners = owners_of(runtime)
    locks = []
    for first in range(0, len(keys), INSPECTED_AT_ONCE):
        batch = keys[first : first + INSPECTED_AT_ONCE]
        found = await asyncio.gather(*(look(runtime, key) for key in batch))
        for key, answers in zip(batch, found, strict=True):
            name = key[len(prefix) :].decode(errors="surrogateescape")
            seen = [holders_in(answer, kinds) for answer in answers]
            nodes = inspections(runtime.nodes, answers, seen, owners)
            locks.append(_lock(name, nodes, seen, owners))
    return locks


@final
@dataclass(slots=True)
class _Search:
    """What a search for locks has found so far, on all nodes together."""

    prefix: bytes
    limit: int
    found: set[bytes] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """Why nodes could not be searched, by their number."""
    truncated: bool = False

    async def run_on_all(self, runtime: Runtime) -> None:
        """Search all nodes at the same time."""
        with anyio.move_on_after(SCAN_TIME) as time:
            async with anyio.create_task_group() as tasks:
                for number, node in enumerate(runtime.nodes):
                    tasks.start_soon(self._run, runtime, number, node)
        self.truncated = self.truncated or time.cancelled_caught

    async def _run(self, runtime: Runtime, number: int, node: Node) -> None:
        """Search one node from the beginning to the end of its keys."""
        cursor = b"0"
        while not self.truncated:
            reply = await ask(runtime, node, scan(self.prefix, cursor), runtime.node_timeout)
            if isinstance(reply, Silence):
                self.failed[number] = reply.reason
                return
            cursor, keys = cast("tuple[bytes, list[bytes]]", reply)  # checked by `fits`
            for key in keys:
                self._add(key)
            if int(cursor) == 0:
                return

    def _add(self, key: bytes) -> None:
        if not is_lock(self.prefix, key) or key in self.found:
            return  # not asked for, and others' keys are none of our business (R16)
        if len(self.found) < self.limit:
            self.found.add(key)
        else:
            self.truncated = True


def scan(prefix: bytes, cursor: bytes = b"0", count: int = SCAN_COUNT) -> Command:
    """Build one step of a search for the keys that begin with `prefix`."""
    args = (cursor, b"MATCH", glob_escaped(prefix) + b"*", b"COUNT", b"%d" % count)
    return Command(Purpose.OTHER, owner=b"", fits=_fits_scan, keys=(), args=args, verb=b"SCAN")


def _lock(
    name: str,
    nodes: tuple[NodeInspection, ...],
    seen: Sequence[tuple[Holder, ...] | None],
    owners: set[bytes],
) -> LockInspection:
    """Put together what the nodes have of each holder; the owner values are secrets that stay here."""
    of_one: dict[tuple[bytes, int | None], list[NodeInspection]] = defaultdict(list)
    for node, holders in zip(nodes, seen, strict=True):
        for holder in holders or ():
            of_one[holder.owner, holder.slot].append(inspection_of(node.node, "", (holder,), owners))
    quorum, readers, permits = majority(len(nodes)), [], []
    for has in of_one.values():
        ttl, held_by = _stays(has, quorum), len(has)
        # Where a downgrade was not heard of, a reader still writes (R23).
        if reader := next((node.readers[0] for node in has if node.readers), None):
            readers.append(replace(reader, ttl=ttl, held_by=held_by))
        elif has[0].permits:
            permits.append(replace(has[0].permits[0], ttl=ttl, held_by=held_by))
    permits.sort(key=lambda permit: (permit.slot, -permit.held_by))
    agreed: list[NodeInspection] = max(of_one.values(), key=len, default=[])
    readers.sort(key=lambda reader: (reader.held_by, reader.ttl or math.inf), reverse=True)
    return LockInspection(
        name=name,
        nodes=nodes,
        agreed=tuple(agreed),
        readers=tuple(readers[:MAX_READERS]),
        more_readers=any(node.more_readers for node in nodes) or len(readers) > MAX_READERS,
        permits=tuple(permits),
    )


def _stays(has: Sequence[NodeInspection], quorum: int) -> float | None:
    """Return the seconds until no majority has this holder; of one that none has, until no node does.

    None without expiry.
    """
    left = sorted((node.ttl for node in has if node.ttl is not None), reverse=True)
    rank = (quorum if len(has) >= quorum else 1) - (len(has) - len(left))
    return left[rank - 1] if left and rank >= 1 else None


def _fits_scan(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (a pair)
        return False
    cursor, keys = reply
    there = isinstance(cursor, bytes) and cursor.isdigit() and isinstance(keys, list)
    return there and all(isinstance(key, bytes) for key in keys)


def _silent(node: NodeInspection) -> bool:
    return node.held is None and not node.wrong_type


def _all_silent(
    nodes: Sequence[Node], failed: dict[int, str], locks: Iterable[LockInspection]
) -> tuple[SilentNode, ...]:
    """Return the nodes that could not be searched, or did not answer for some lock."""
    reasons = dict(failed)
    for lock in locks:
        for number, entry in enumerate(lock.nodes):
            if _silent(entry):
                reasons.setdefault(number, entry.reason)
    return tuple(SilentNode(node=nodes[number].name, reason=reasons[number]) for number in sorted(reasons))
