"""Changes of a lock between two looks at it, by what a majority shows."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, final

if TYPE_CHECKING:
    from .. import LockInspection, LockManager, NodeInspection, QueueInspection

SLACK: Final = 0.05
"""Seconds by which a lock's end must move to count as an extension: nodes do not end it at one instant."""

What: TypeAlias = Literal[
    "free", "held", "granted", "extended", "handed over", "released", "expired", "waits", "left",
    "silent", "differs", "agrees",
]  # fmt: skip
"""A kind of event.  ``free``, ``held``: how the first look found it."""


@final
class HolderRow(NamedTuple):
    """One that holds the lock: alone, as one of its readers, or one of its permits."""

    kind: str | None
    holder: str | None
    since: float | None
    slot: int | None = None


Waiter: TypeAlias = tuple[str | None, int]
"""A waiter, by its label and its rank among the waiters with that label.

Since when it waits would not do: nodes do not agree on that to the millisecond.
"""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened; what does not belong to it is None."""

    what: What
    holder: str | None = None
    kind: str | None = None
    since: float | None = None
    slot: int | None = None
    ttl: float | None = None
    """Seconds until it is free unless it is extended."""
    before: str | None = None
    """The holder before."""
    place: int | None = None
    """In line; 0 is next."""
    node: str | None = None
    reason: str | None = None


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All that is known after a look, and what that rests on."""

    asked: float
    """When the nodes were asked, in seconds by one clock."""
    answered: float
    """When they had answered."""
    holders: Mapping[HolderRow, float | None]
    """The holders that a majority shows, each with the seconds that it stays; None without an end."""
    unsure: frozenset[HolderRow] | None = frozenset()
    """Those of which too few nodes are heard to say that they hold it, or not; None: it may be any."""
    line: Mapping[Waiter, tuple[int, float]] | None = None
    """Those in line, each with its place, and since when it is there; None: no majority answered."""
    silent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The nodes that did not answer, and why."""
    apart: frozenset[str] = frozenset()
    """The nodes that answered otherwise than the majority."""
    differs: frozenset[str] = frozenset()
    """Of these, those that did so twice: one look may meet a lock that changes."""
    known: bool = True
    """Whether it is, or was before, plain which holders there are."""

    def on(self, before: Picture) -> Picture:
        """Return it with what is still known from `before` in the place of what was not heard."""
        if self.known and not self.apart and (before.line is None or self.line is not None):
            return self  # all was heard
        holders = dict(self.holders)
        for holder, ttl in before.holders.items():
            if holder not in holders and (self.unsure is None or holder in self.unsure):
                holders[holder] = None if ttl is None else ttl - (self.asked - before.asked)
        return dataclasses.replace(
            self,
            holders=holders,
            line=before.line if self.line is None else self.line,
            known=self.known or before.known,
            differs=self.apart & (before.apart | before.differs),
        )


# -- from answers to a picture -----------------------------------------------------------------------


def picture(
    nodes: Sequence[NodeInspection], queue: QueueInspection | None, *, asked: float, answered: float
) -> Picture:
    """Put together what the nodes said of a lock, and of the queue for it."""
    quorum = len(nodes) // 2 + 1
    seen = {node.node: _holders_on(node) for node in nodes}
    ttls: dict[HolderRow, list[float | None]] = {}
    for found in seen.values():
        for holder, ttl in found.items():
            ttls.setdefault(holder, []).append(ttl)
    silent = {node.node: node.reason for node in nodes if node.held is None and not node.wrong_type}
    unseen = len(silent) + sum(node.more_readers for node in nodes)
    holders = {holder: _stays(left, quorum) for holder, left in ttls.items() if len(left) >= quorum}
    unsure = frozenset(h for h, left in ttls.items() if h not in holders and len(left) + unseen >= quorum)
    may_be = holders.keys() | unsure
    return Picture(
        asked=asked,
        answered=answered,
        holders=holders,
        unsure=unsure if unseen < quorum else None,
        known=unseen < quorum and not unsure,
        line=_line(queue, len(nodes)),
        silent=silent,
        apart=frozenset(
            node.node
            for node in nodes
            if unseen < quorum and node.node not in silent and not node.more_readers
            if node.wrong_type or not holders.keys() <= seen[node.node].keys() <= may_be
        ),
    )


def _holders_on(node: NodeInspection) -> dict[HolderRow, float | None]:
    if node.permits:
        return {HolderRow("semaphore", each.holder, each.since, each.slot): each.ttl for each in node.permits}
    if node.readers:
        return {HolderRow("read", each.holder, each.since): each.ttl for each in node.readers}
    return {HolderRow(node.kind, node.holder, node.since): node.ttl} if node.held else {}


def _stays(left: Iterable[float | None], quorum: int) -> float | None:
    """Return the seconds until no majority has it; None: no end."""
    longest = sorted((float("inf") if ttl is None else ttl for ttl in left), reverse=True)[quorum - 1]
    return None if longest == float("inf") else longest


def _line(queue: QueueInspection | None, nodes: int) -> dict[Waiter, tuple[int, float]] | None:
    if queue is None or 2 * len(queue.silent) >= nodes:
        return None
    line: dict[Waiter, tuple[int, float]] = {}
    number: Counter[str | None] = Counter()
    for each in queue.waiters:
        number[each.holder] += 1
        line[each.holder, number[each.holder]] = each.place, each.since
    return line


# -- from pictures to events -------------------------------------------------------------------------


def events(before: Picture | None, now: Picture) -> list[Event]:
    """Say what has happened; `now` stands on `before` already (`Picture.on`), the first one on nothing."""
    if before is not None and before.known:
        found = _holder_events(before, now)
    else:
        found = [_of("held", holder, ttl) for holder, ttl in now.holders.items()]
        if now.known and not found:
            found = [Event(what="free")]
    line = before.line if before else None
    return [*found, *_line_events(line or {}, now), *_node_events(before, now)]


def _of(what: What, holder: HolderRow, ttl: float | None = None, before: str | None = None) -> Event:
    kind, name, since, slot = holder
    return Event(what=what, holder=name, kind=kind, since=since, slot=slot, ttl=ttl, before=before)


def _holder_events(before: Picture, now: Picture) -> list[Event]:
    """Ends come first; a lock that went from one to another at once was handed over.

    A name that stays taken after its release (`at_least`, R34) has the kind ``kept``: no lock is handed over
    to that, or from it.
    """
    gone = {holder: ttl for holder, ttl in before.holders.items() if holder not in now.holders}
    came = [holder for holder in now.holders if holder not in before.holders and holder.kind != "kept"]
    heirs = {holder.slot: holder for holder in came if holder.kind != "read"}
    found, handed = [], set()
    for holder, ttl in gone.items():
        heir = heirs.get(holder.slot)
        if ttl is not None and now.answered >= before.asked + ttl:
            found.append(_of("expired", holder))
        elif heir is not None and holder.kind not in ("read", "kept") and heir not in handed:
            found.append(_of("handed over", heir, now.holders[heir], holder.holder))
            handed.add(heir)
        else:
            found.append(_of("released", holder))
    found += [_of("granted", holder, now.holders[holder]) for holder in came if holder not in handed]
    return found + [
        _of("extended", holder, ttl)
        for holder, ttl in now.holders.items()
        if _extended(before, now, before.holders.get(holder), ttl)
    ]


def _extended(before: Picture, now: Picture, old: float | None, new: float | None) -> bool:
    """Whether its end has moved, however long the answers took."""
    return old is not None and new is not None and now.asked + new > before.answered + old + SLACK


def _line_events(before: Mapping[Waiter, object], now: Picture) -> list[Event]:
    """One that got the lock has not left the queue without it."""
    line, holding = now.line or {}, {holder.holder for holder in now.holders}
    gone = [waiter[0] for waiter in before if waiter not in line]
    return [Event(what="left", holder=label) for label in gone if label not in holding] + [
        Event(what="waits", holder=waiter[0], place=place, since=since)
        for waiter, (place, since) in line.items()
        if waiter not in before
    ]


def _node_events(before: Picture | None, now: Picture) -> list[Event]:
    silent, differs = (before.silent, before.differs) if before else ({}, frozenset[str]())
    found = [
        Event(what="silent", node=node, reason=reason)
        for node, reason in now.silent.items()
        if node not in silent
    ]
    found += [Event(what="differs", node=node) for node in sorted(now.differs - differs)]
    well = (silent.keys() | differs) - now.silent.keys() - now.differs
    return found + [Event(what="agrees", node=node) for node in sorted(well)]


# -- from nodes to a picture -------------------------------------------------------------------------


async def look_at(manager: LockManager, name: str) -> tuple[float, LockInspection, QueueInspection, Picture]:
    """Return the Unix time, a lock, its queue, and both as `events` compares them.

    The queue is asked for first: one that leaves it for the lock is seen to hold that, not to be nowhere.
    """
    loop = asyncio.get_running_loop()
    queue = await manager.queue(name)
    asked = loop.time()
    survey = await manager.survey(name)
    (lock,) = survey.locks
    return survey.at, lock, queue, picture(lock.nodes, queue, asked=asked, answered=loop.time())
