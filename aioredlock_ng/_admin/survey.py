"""Inspects all locks from outside: their names, what nodes hold under each, and the queues for them (R28)."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, final

from .. import _scripts
from .._core.command import Command, Purpose
from .._core.fencing import SHIFT, at, certified
from .._core.keyspace import QUEUE, SEATS, TICKETS, mark_key, marks_begin
from .._core.quorum import Vote, majority
from .._kinds.answers import seconds
from .._kinds.read_write import READ
from ..errors import ConfigurationError, NodeVote
from .inspection import (
    MAX_READERS,
    NodeInspection,
    PermitInspection,
    ReaderInspection,
    count_in,
    holders_in,
    inspection_of,
    kind_of,
)
from .look import KeyEntry, Search, ask_all, look, only_records

if TYPE_CHECKING:
    from .._lock.session import Session
    from .._node.redis_node import Node


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LockInspection:
    """The holders under one lock's name on all nodes."""

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
        """The sort of lock: as `NodeInspection.kind`."""
        return READ.name if self.shared else self.agreed[0].kind if self.agreed else None

    @property
    def held_by(self) -> int:
        """The number of nodes that agree on one holder; of readers or permits, on the most frequent one."""
        return len(self.agreed)

    @property
    def state(self) -> Literal["held", "partial", "unknown", "free"]:
        """The state that follows from all nodes.

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
        """The label of the holder, or of one of the readers; None: it is free, or another program's."""
        return self.agreed[0].holder if self.agreed else None

    @property
    def since(self) -> float | None:
        """When that holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
        return self.agreed[0].since if self.agreed else None

    @property
    def highest_fence(self) -> int | None:
        """The highest fence that can have been given out under the name so far, the holder's included (R10).

        It is the holder's own, but for what nodes cannot tell.  A process that hands a mutex on among its
        tasks (R43) takes up to 64 fences at once: the holder's is this one, or up to 63 less.  A holder with
        ``fencing=False`` has none, and this is an earlier one's.  Readers may have less, from before it was
        given out.  A try that is under way, and no lease yet, may still end with a higher one.

        None: no majority has the holder and a counter at one number; or it is a semaphore, whose slots have
        counters of their own.
        """
        counters = [node.fence_counter for node in self.agreed if node.fence_counter is not None]
        return certified(counters, majority(len(self.nodes)))

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
    """When it was begun to ask for these locks, in Unix seconds by this manager's clock: by the nodes' clocks
    none is held for longer than its `ttl` from then on, unless it is extended."""

    def __len__(self) -> int:
        """Return the number of `locks`."""
        return len(self.locks)

    def __iter__(self) -> Iterator[LockInspection]:
        """Go through `locks`."""
        return iter(self.locks)


async def survey(session: Session, prefix: bytes, keys: Sequence[bytes], limit: int) -> Survey:
    """Look at `keys`; without any, at those of every lock that a node has, `limit` of them at most."""
    search = Search(prefix, limit)
    if not keys:
        await search.run_on_all(session)
    at = session.wall()
    locks = await _inspect(session, prefix, keys, sorted(search.found, key=_natural))
    return Survey(
        locks=tuple(lock for lock in locks if keys or lock.state != "free"),  # some have ended meanwhile
        truncated=search.truncated,
        silent=_all_silent(session.nodes, search.failed, locks),
        at=at,
    )


def _natural(key: bytes) -> tuple[bytes, bytes]:
    """Return what sorts a key by the numbers in it, up to 20 digits: ``report:2`` before ``report:10``."""
    return _NUMBER.sub(lambda found: found[0].zfill(20), key), key


async def _inspect(
    session: Session, prefix: bytes, named: Sequence[bytes], found: Sequence[bytes]
) -> list[LockInspection]:
    """Ask all nodes for all keys that were named, or else found; many at a time."""
    reader = _Reader(session)
    locks: list[LockInspection] = []
    keys = named or found
    while keys:
        rows = await look(session, keys)
        for key, row in zip(keys, rows, strict=False):
            if named or not only_records(key, row):
                locks.append(reader.lock(key[len(prefix) :].decode(errors="surrogateescape"), row))
        keys = keys[len(rows) :]
    return locks


async def inspect(session: Session, key: bytes) -> tuple[NodeInspection, ...]:
    """Ask every node what is under `key`."""
    (row,) = await look(session, (key,))
    return _Reader(session).lock("", row).nodes


async def force_release(session: Session, key: bytes) -> tuple[NodeInspection, ...]:
    """Delete `key` on every node and return what was there before.

    Raises:
        ConfigurationError: it is no lock, but the record of clients with a longer prefix.
    """
    (row,) = await look(session, (key,))
    if only_records(key, row):
        raise ConfigurationError(
            f"the key {ascii(key)[1:]} is a record of clients with a longer prefix, and no lock: nothing was "
            "deleted"
        )
    before = _Reader(session).lock("", row).nodes
    command = Command(
        Purpose.OTHER, owner=b"", fits=lambda reply: isinstance(reply, int), keys=(key,), verb=b"DEL"
    )
    return tuple(
        entry
        if answer.vote is Vote.GRANTED
        else NodeInspection(node=entry.node, held=None, reason=answer.reason)
        for entry, answer in zip(before, await ask_all(session, command), strict=True)
    )


@final
class _Reader:
    """Puts together what nodes tell of a lock; the holders' owner values are secrets that stay here."""

    def __init__(self, session: Session) -> None:
        self._nodes = [node.name for node in session.nodes]
        self._quorum = session.outbox.quorum
        self._owners = {holding.owner for holding in session.watchdog.leases}  # of this manager

    def lock(self, name: str, row: tuple[KeyEntry, ...]) -> LockInspection:
        """Say what all nodes have of a lock, by their answers in the `row`."""
        values = [entry[0] for entry in row if not isinstance(entry, str)]
        if values and type(values[0]) is bytes and values.count(values[0]) == len(values):
            return self._of_one_value(name, row, values[0])
        return self._of_several_values(name, row)

    def _of_one_value(self, name: str, row: tuple[KeyEntry, ...], value: bytes) -> LockInspection:
        """All that tell have the same string, as nearly always: one holder, which is read once."""
        (holder,) = holders_in((value, -1, None)) or ()
        ours, label, since, kind = value in self._owners, holder.label, holder.since, kind_of(holder)
        nodes = tuple(
            [
                NodeInspection(node=node, held=None, reason=entry)
                if isinstance(entry, str)
                else NodeInspection(
                    node=node,
                    held=True,
                    ours=ours,
                    holder=label,
                    since=since,
                    ttl=seconds(entry[1]),
                    kind=kind,
                    fence_counter=count_in(entry[2]),
                )
                for node, entry in zip(self._nodes, row, strict=True)
            ]
        )
        return LockInspection(name=name, nodes=nodes, agreed=tuple([node for node in nodes if node.held]))

    def _of_several_values(self, name: str, row: tuple[KeyEntry, ...]) -> LockInspection:
        """Group what they have by its holders."""
        nodes: list[NodeInspection] = []
        of_one: dict[tuple[bytes, int | None], list[NodeInspection]] = {}
        for node, entry in zip(self._nodes, row, strict=True):
            holders = holders_in(entry)
            whole = inspection_of(node, entry, holders, self._owners)
            nodes.append(whole)
            for holder in holders or ():
                part = whole if holders == (holder,) else inspection_of(node, entry, (holder,), self._owners)
                of_one.setdefault((holder.owner, holder.slot), []).append(part)
        agreed: list[NodeInspection] = max(of_one.values(), key=len, default=[])
        readers, permits = self._shared(of_one.values())
        return LockInspection(
            name=name,
            nodes=tuple(nodes),
            agreed=tuple(agreed),
            readers=tuple(readers[:MAX_READERS]),
            more_readers=any(node.more_readers for node in nodes) or len(readers) > MAX_READERS,
            permits=tuple(permits),
        )

    def _shared(
        self, of_one: Iterable[list[NodeInspection]]
    ) -> tuple[list[ReaderInspection], list[PermitInspection]]:
        """Return the readers and the permits among the holders, of each of which these nodes have a part."""
        readers, permits = [], []
        for has in of_one:
            ttl, held_by = _stays(has, self._quorum), len(has)
            # Where a downgrade was not heard of, a reader still writes (R23).
            if reader := next((node.readers[0] for node in has if node.readers), None):
                readers.append(replace(reader, ttl=ttl, held_by=held_by))
            elif has[0].permits:
                permits.append(replace(has[0].permits[0], ttl=ttl, held_by=held_by))
        permits.sort(key=lambda permit: (permit.slot, -permit.held_by))
        readers.sort(key=lambda reader: (reader.held_by, reader.ttl or math.inf), reverse=True)
        return readers, permits


def _stays(has: Sequence[NodeInspection], quorum: int) -> float | None:
    """Return the seconds until no majority has this holder; of one that none has, until no node does.

    None without expiry.
    """
    left = sorted((node.ttl for node in has if node.ttl is not None), reverse=True)
    rank = (quorum if len(has) >= quorum else 1) - (len(has) - len(left))
    return left[rank - 1] if left and rank >= 1 else None


def _silent(node: NodeInspection) -> bool:
    return node.held is None and not node.wrong_type


def _all_silent(
    nodes: Sequence[Node], failed: dict[int, str], locks: Iterable[LockInspection]
) -> tuple[SilentNode, ...]:
    """Return the nodes that could not be searched, or did not answer for some lock."""
    reasons = dict(failed)
    for lock in locks:
        for number, entry in enumerate(lock.nodes):
            if entry.held is None and _silent(entry):
                reasons.setdefault(number, entry.reason)
    return tuple(SilentNode(node=nodes[number].name, reason=reasons[number]) for number in sorted(reasons))


def votes_of(session: Session, found: Survey) -> tuple[NodeVote, ...]:
    """Return which nodes have answered, and why the others have not, for an error that says too few have."""
    silent = {each.node: each.reason for each in found.silent}
    return tuple(
        NodeVote(node.name, Vote.SILENT, silent[node.name])
        if node.name in silent
        else NodeVote(node.name, Vote.GRANTED)
        for node in session.nodes
    )


_NUMBER: Final = re.compile(rb"\d+")

MAX_WAITING: Final = 100
"""Waiters of one line that a node is asked for, the first ones; of more it only says that there are
more."""

_LAST: Final = at(2**43)
"""The greatest ticket that is believed, of the year 2248: other programs may write anything."""

_SHOWN_BYTES: Final = 1024  # of a seat's name

_WAITER: Final = re.compile(rb"[0-9a-f]{40}:(?P<label>.*?)\}?", re.DOTALL)
"""The name of one that waits, in a flag or behind the mark of a seat; of a long one the end is missing.  The
digits are a secret: on the channel of a seat a process is notified of releases."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterInspection:
    """One process that waits in line for a fair lock."""

    place: int
    """Its place: 0 is next."""
    holder: str | None
    """Its holder label; None when another program's entry stands there."""
    since: float
    """Since when it waits, in Unix seconds by the nodes' clocks."""
    ours: bool
    """Whether it is this manager."""
    known_to: int
    """The number of nodes that have it in their line."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInspection:
    """The waiters for one lock, as the nodes that answered have them: in line for a fair lock, or writers."""

    name: str
    waiters: tuple[WaiterInspection, ...]
    """Those that most of these nodes know of, in their order."""
    more_waiters: bool
    """Whether there are more than the 100 in `waiters`."""
    silent: tuple[SilentNode, ...]
    """The nodes that did not answer, and why; what only they know of is missing."""
    writers: tuple[str | None, ...] = ()
    """The holder labels of the writers that wait for a read-write lock, 100 at most, in no order; None: it is
    another program's."""

    def __len__(self) -> int:
        """Return the number of `waiters`."""
        return len(self.waiters)

    def __iter__(self) -> Iterator[WaiterInspection]:
        """Go through `waiters`."""
        return iter(self.waiters)


async def look_at_line(session: Session, key: bytes, name: str) -> QueueInspection:
    """Ask every node which processes wait for the lock under `key`, and put the answers together."""
    prefix = session.options.prefix
    answers = await ask_all(session, look_for_line(prefix, key))
    lines: list[dict[bytes, int]] = []
    writers: Counter[bytes] = Counter()
    more, silent = False, []
    for node, answer in zip(session.nodes, answers, strict=True):
        found: Any = answer.found
        if not isinstance(found, list):
            silent.append(SilentNode(node=node.name, reason=answer.reason))
            continue
        longer, line, waiting = found
        writers.update(waiting)
        lines.append(dict(zip(line[::2], line[1::2], strict=True)))
        more = more or longer > 0
    waiters = _in_order(lines, prefix, session.seat.name[:_SHOWN_BYTES])
    return QueueInspection(
        name=name,
        waiters=waiters[:MAX_WAITING],
        more_waiters=more or len(waiters) > MAX_WAITING,
        silent=tuple(silent),
        writers=tuple(_label(name) for name, known in writers.items() if 2 * known > len(lines)),
    )


def _in_order(lines: Sequence[dict[bytes, int]], prefix: bytes, ours: bytes) -> tuple[WaiterInspection, ...]:
    """Put the lines of several nodes together: a seat's place is by the greatest of its tickets."""
    tickets: dict[bytes, list[int]] = defaultdict(list)
    for line in lines:
        for seat, ticket in line.items():
            tickets[seat].append(ticket)
    known = sorted((max(all_), seat) for seat, all_ in tickets.items() if 2 * len(all_) > len(lines))
    return tuple(
        WaiterInspection(
            place=place,
            holder=_label(seat.removeprefix(marks_begin(prefix, SEATS))),
            since=(max(0, min(ticket, _LAST)) >> SHIFT) / 1000,
            ours=seat == ours,
            known_to=len(tickets[seat]),
        )
        for place, (ticket, seat) in enumerate(known)
    )


def _label(name: bytes) -> str | None:
    found = _WAITER.fullmatch(name)
    return None if found is None else found["label"].decode(errors="replace")


def look_for_line(prefix: bytes, key: bytes) -> Command:
    """Build the question which processes stand in line for the lock under `key`, or wait to write."""
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=_fits_line,
        keys=tuple(mark_key(prefix, mark, key) for mark in (TICKETS, SEATS, QUEUE)),
        args=(b"%d" % MAX_WAITING,),
        script=_scripts.QUEUE,
    )


def _fits_line(reply: object) -> bool:
    match reply:
        case [int(), [*line], [*writers]] if len(line) % 2 == 0:
            names = all(isinstance(each, bytes) for each in (*line[::2], *writers))
            return names and all(isinstance(ticket, int) for ticket in line[1::2])
    return False
