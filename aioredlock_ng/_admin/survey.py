"""Looking at all locks from outside: which there are, and what the nodes hold under each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast, final

import anyio

from .._core.command import Command, Purpose, Silence
from .._core.keyspace import is_lock
from .._core.quorum import majority
from .._core.rights import glob_escaped
from .._kinds import KINDS
from .._kinds.kind import Holder, Kind
from .inspection import NodeInspection, ask, holders_in, inspections, look, owners_of

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
    """The nodes that have the same value: of several such groups the largest."""

    @property
    def held_by(self) -> int:
        """How many nodes agree on one holder."""
        return len(self.agreed)

    @property
    def state(self) -> Literal["held", "partial", "unknown", "free"]:
        """What they come to.

        ``held``: a majority agrees.  ``partial``: none does or could: what a holder left on some nodes, a
        try under way, or a key that is no lock.  ``unknown``: it depends on nodes that did not answer.
        """
        quorum = majority(len(self.nodes))
        answers = [node for node in self.nodes if not _silent(node)]
        if self.held_by >= quorum:
            return "held"
        if self.held_by + len(self.nodes) - len(answers) >= quorum:
            return "unknown"
        return "free" if all(node.held is False for node in answers) else "partial"

    @property
    def holder(self) -> str | None:
        """What the holder calls itself; None when the lock is free or another program's."""
        return self.agreed[0].holder if self.agreed else None

    @property
    def since(self) -> float | None:
        """When the holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
        return self.agreed[0].since if self.agreed else None

    @property
    def ttl(self) -> float | None:
        """Seconds until no majority holds it any more; of a partial one, until its last key is gone.

        None when nothing is held, or has no expiry.
        """
        left = sorted((node.ttl for node in self.agreed if node.ttl is not None), reverse=True)
        quorum = majority(len(self.nodes))
        rank = (quorum if self.held_by >= quorum else 1) - (len(self.agreed) - len(left))
        return left[rank - 1] if left and rank >= 1 else None


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
            locks.append(LockInspection(name=name, nodes=nodes, agreed=_agreed(nodes, seen)))
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


def _agreed(
    nodes: Sequence[NodeInspection], seen: Sequence[tuple[Holder, ...] | None]
) -> tuple[NodeInspection, ...]:
    """Return the largest group of nodes with one holder; its owner value is a secret that stays here."""
    groups: dict[bytes, list[NodeInspection]] = defaultdict(list)
    for node, holders in zip(nodes, seen, strict=True):
        for holder in holders or ():
            groups[holder.owner].append(node)
    largest: list[NodeInspection] = max(groups.values(), key=len, default=[])
    return tuple(largest)


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
