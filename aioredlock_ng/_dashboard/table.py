"""The table of locks from look to look: its rows, those that have changed, and what happened to the locks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from .._view.changes import Picture, events, picture
from .._view.values import Value, row

if TYPE_CHECKING:
    from .. import Survey
    from .._view.overview import Overview

STEP: Final = 50
"""Locks between two turns of the loop, a few milliseconds: thousands of them would hold it up."""

MAX_ROWS: Final = 5000
"""Locks that are shown, at most."""

SLACK: Final = 0.25
"""Seconds by which a lock's end must move to be sent again: five nodes never give it to the millisecond."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one look."""

    rows: Mapping[str, Value]
    pictures: Mapping[str, Picture]
    """Of each of these, as `events` compares them."""
    free: Picture
    """Of all other names."""
    truncated: bool = False
    """Whether there may be more."""


NOTHING_YET: Final = Table(rows={}, pictures={}, free=Picture(asked=0.0, answered=0.0, holders={}))


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference of two tables."""

    changed: Mapping[str, Value]
    """The rows to send."""
    gone: Sequence[str]
    happened: Mapping[str, int]
    """The number of locks, readers or permits that were granted, released and so on in between."""


def not_found(overview: Overview, before: Table) -> list[str]:
    """Return the locks of `before` that may be held though a search has not found them."""
    survey = overview.survey
    assert survey is not None, "a problem is reported elsewhere"
    if not survey.truncated and overview.answered >= overview.quorum:
        return []
    found = {lock.name for lock in survey.locks}
    return [name for name, seen in before.pictures.items() if seen.holders and name not in found]


async def table(overview: Overview, before: Table, again: Survey | None = None, took: float = 0.0) -> Table:
    """Make the rows of what was seen, and `again` of what a search has not found; `took`: seconds.

    Ends that have hardly moved stay as they were sent.  Of too many locks those stay that were shown.
    """
    survey = overview.survey
    assert survey is not None, "a problem is reported elsewhere"
    seen = [
        (lock, each.at)
        for each in (survey, again)
        if each is not None
        for lock in each.locks
        if lock.state != "free"
    ]
    seen.sort(key=lambda each: each[0].name not in before.rows)
    rows: dict[str, Value] = {}
    pictures: dict[str, Picture] = {}
    for number, (lock, at) in enumerate(seen[:MAX_ROWS]):
        if number % STEP == 0:
            await asyncio.sleep(0)
        old = before.rows.get(lock.name)
        rows[lock.name] = now = row(lock, at, overview.queues.get(lock.name))
        if old is not None and lock.state == "unknown" and not lock.agreed:
            rows[lock.name] = {**old, "state": "unknown", "held_by": 0}  # what was known of it still is
        elif old is not None and None not in (old["until"], now["until"]):
            now["until"] = old["until"] if abs(now["until"] - old["until"]) <= SLACK else now["until"]
        shown = picture(lock.nodes, None, asked=at, answered=at + took)
        # Of readers that are too many each look names others.
        last = before.pictures.get(lock.name, before.free)
        pictures[lock.name] = shown if lock.more_readers else shown.on(last)
    return Table(
        rows=rows,
        pictures=pictures,
        free=dataclasses.replace(NOTHING_YET.free, asked=survey.at, answered=survey.at + took),
        truncated=survey.truncated or len(seen) > MAX_ROWS,
    )


async def change(before: Table, now: Table) -> Change:
    """Return the rows that have changed, and what happened."""
    happened = Counter[str]()
    for number, name in enumerate(before.pictures.keys() | now.pictures.keys()):
        if number % STEP == 0:
            await asyncio.sleep(0)
        looked_at = name in before.rows or not before.truncated
        if looked_at and not any(each.rows.get(name, {}).get("more_readers") for each in (before, now)):
            old, new = before.pictures.get(name, before.free), now.pictures.get(name, now.free)
            happened.update(event.what for event in events(old, new))
    return Change(
        changed={name: row for name, row in now.rows.items() if before.rows.get(name) != row},
        gone=[name for name in before.rows if name not in now.rows],
        happened=happened,
    )
