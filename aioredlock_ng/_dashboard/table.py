"""The table of locks from look to look: which rows there are, what has changed, and what that means."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from .wire import Row, row, until_of

if TYPE_CHECKING:
    from .. import LockInspection, Survey
    from .overview import Overview

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work in steps, between which a loop has others go on: thousands of locks would hold it up."""

STEP: Final = 50
"""Locks that one step deals with: a millisecond or two."""

MAX_ROWS: Final = 5000
"""Locks that are shown, at most."""

SLACK: Final = 0.25
"""Seconds by which a lock's end must move to be told anew: five nodes never give it to the millisecond."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """By whom a lock was held when that was last known, and until when."""

    until: Mapping[object, float | None] = dataclasses.field(default_factory=dict)
    """The ends of what a majority has: by what tells one holder, reader or permit from the next."""
    all_named: bool = True
    """Whether it has no readers besides."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one look."""

    at: float
    """When it was seen, in Unix seconds by the manager's clock."""
    rows: Mapping[str, Row]
    held: Mapping[str, Held]
    """Of some of these."""
    truncated: bool = False
    """Whether there may be more."""


NOTHING_YET: Final = Table(at=0.0, rows={}, held={})


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs between two tables."""

    changed: Mapping[str, Row]
    """The rows to send."""
    gone: Sequence[str]
    happened: Mapping[str, int]
    """How many locks, readers or permits were granted, released and so on in between."""


def not_found(overview: Overview, before: Table) -> list[str]:
    """Return the locks of `before` that may be held though a search has not found them."""
    survey = overview.survey
    assert survey is not None, "a problem is told elsewhere"
    if not survey.truncated and overview.answered >= overview.quorum:
        return []
    found = {lock.name for lock in survey.locks}
    return [name for name in before.held if name not in found]


def table(overview: Overview, before: Table, again: Survey | None = None) -> Steps[Table]:
    """Make the rows of what was seen, and `again` of what a search has not found.

    Ends that have hardly moved stay as they were told.  Of too many locks those stay that were shown.
    """
    survey = overview.survey
    assert survey is not None, "a problem is told elsewhere"
    seen = [
        (lock, each.at)
        for each in (survey, again)
        if each is not None
        for lock in each.locks
        if lock.state != "free"
    ]
    seen.sort(key=lambda each: each[0].name not in before.rows)
    rows: dict[str, Row] = {}
    held: dict[str, Held] = {}
    for number, (lock, at) in enumerate(seen[:MAX_ROWS]):
        if number % STEP == 0:
            yield
        old = before.rows.get(lock.name)
        rows[lock.name] = now = row(lock, at, overview.queues.get(lock.name))
        if old is not None:
            now["until"] = _told(old["until"], now["until"])
        if lock.state == "held":
            held[lock.name] = _held(lock, at, before.held.get(lock.name, _FREE))
        elif lock.state == "unknown" and lock.name in before.held:
            held[lock.name] = before.held[lock.name]
            if old is not None and not lock.agreed:  # nothing is heard of it: what was is still known
                rows[lock.name] = {**old, "state": "unknown", "held_by": 0}
    return Table(at=survey.at, rows=rows, held=held, truncated=survey.truncated or len(seen) > MAX_ROWS)


def change(before: Table, now: Table) -> Steps[Change]:
    """Say what has changed, and what that means."""
    happened = Counter[str]()
    for number, name in enumerate(before.held.keys() | now.held.keys()):
        if number % STEP == 0:
            yield
        old, new = before.held.get(name, _FREE), now.held.get(name, _FREE)
        looked_at = name in before.rows or not before.truncated
        if old is not new and looked_at:
            happened.update(_happened(old, new, now.at))
    return Change(
        changed={name: row for name, row in now.rows.items() if before.rows.get(name) != row},
        gone=[name for name in before.rows if name not in now.rows],
        happened=happened,
    )


_FREE: Final = Held()


def _happened(old: Held, new: Held, at: float) -> Counter[str]:
    if not (old.all_named and new.all_named):
        return Counter()  # of so many readers each look names others
    ends = [_end(until) for holder, until in old.until.items() if holder not in new.until]
    came = len(new.until.keys() - old.until.keys())
    expired = sum(at >= end - SLACK for end in ends)  # nothing released it: its holder lost it, or is dead
    released = len(ends) - expired
    handed = min(released, came) if len(old.until) == len(new.until) == 1 else 0
    both = old.until.keys() & new.until.keys()
    return Counter(
        expired=expired,
        handed_over=handed,
        released=released - handed,
        granted=came - handed,
        extended=sum(_end(new.until[holder]) > _end(old.until[holder]) for holder in both),
    )


def _end(until: float | None) -> float:
    return math.inf if until is None else until


def _told(old: float | None, new: float | None) -> float | None:
    """Return an end as it is told: the old one where it is hardly another."""
    if old is None or new is None:
        return new
    return new if abs(new - old) > SLACK else old


def _held(lock: LockInspection, at: float, before: Held) -> Held:
    """Say who holds it; those may still that did, and of which too few nodes tell."""
    quorum = len(lock.nodes) // 2 + 1
    unseen = sum(node.held is None and not node.wrong_type for node in lock.nodes)
    until: dict[object, float | None] = {}
    for holder, votes, ttl in _holders(lock):
        if votes >= quorum:
            end = until_of(ttl, at)
            until[holder] = _told(before.until[holder], end) if holder in before.until else end
        elif votes + unseen >= quorum and holder in before.until:
            until[holder] = before.until[holder]
    return Held(until=until, all_named=not lock.more_readers)


def _holders(lock: LockInspection) -> Iterator[tuple[object, int, float | None]]:
    """Give each of those that any node has, with how many have it, and its seconds."""
    for reader in lock.readers:
        yield (reader.holder, reader.since), reader.held_by, reader.ttl
    for permit in lock.permits:
        yield (permit.holder, permit.since, permit.slot), permit.held_by, permit.ttl
    if not (lock.readers or lock.permits):
        yield (lock.holder, lock.since, lock.kind), lock.held_by, lock.ttl
