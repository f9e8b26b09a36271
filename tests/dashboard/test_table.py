"""The data of a page: rows, those that have changed, and what that means."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import Any

from aioredlock_ng import (
    LockInspection,
    NodeInspection,
    PermitInspection,
    ReaderInspection,
    SilentNode,
    Survey,
)
from aioredlock_ng._dashboard import table as tables
from aioredlock_ng._view import values as wire
from aioredlock_ng._view.overview import Overview
from aioredlock_ng.testing.sim_loop import EPOCH

NODES = "abc"


def table_of(*seen: Any) -> tables.Table:
    """Make the table of what was seen."""
    return asyncio.run(tables.table(*seen))


def change_of(before: tables.Table, now: tables.Table) -> tables.Change:
    """Say what has changed."""
    return asyncio.run(tables.change(before, now))


def held(
    holder: str | None = "me", ttl: float | None = 9.0, since: float = EPOCH, **more: Any
) -> dict[str, Any]:
    """Make what a node has of one holder."""
    return {"held": True, "holder": holder, "since": since, "ttl": ttl, "kind": "mutex", **more}


def lock(name: str, found: dict[str, Any], on: int = 3, silent: int = 0, **more: Any) -> LockInspection:
    """Make a lock that `on` nodes have, and of which `silent` ones say nothing."""
    nodes = [NodeInspection(node=node, **found) for node in NODES[:on]]
    nodes += [NodeInspection(node=node, held=None, reason="no answer") for node in NODES[on : on + silent]]
    nodes += [NodeInspection(node=node, held=False) for node in NODES[on + silent :]]
    return LockInspection(name=name, nodes=tuple(nodes), agreed=tuple(nodes[:on]), **more)


def seen(*locks: LockInspection, at: float = 0.0, silent: int = 0) -> Overview:
    """Make an overview `at` seconds after the first one."""
    missing = tuple(SilentNode(node=node, reason="no answer") for node in NODES[:silent])
    survey = Survey(locks=locks, truncated=False, silent=missing, at=EPOCH + at)
    return Overview(nodes=(None,) * 3, survey=survey)  # type: ignore[arg-type]  # nothing here looks at them


def readers(*who: str, more: bool = False) -> LockInspection:
    """Make a lock that these read."""
    found = tuple(ReaderInspection(holder=each, since=EPOCH, ttl=9.0, held_by=3) for each in who)
    return lock("a", held(who[0], kind="read", readers=found), readers=found, more_readers=more)


ME = lock("a", held())


def test_an_end_is_sent_again_when_it_has_moved():
    """Five nodes never say the same to the millisecond; rows that hardly differ are not sent again."""
    before = table_of(seen(ME), tables.NOTHING_YET)
    same = table_of(seen(lock("a", held(ttl=7.2)), at=2), before)
    assert change_of(before, same).changed == {}
    moved = table_of(seen(lock("a", held(ttl=7.3)), at=2), before)
    assert change_of(before, moved).changed["a"]["until"] == EPOCH + 9.3
    gone = change_of(before, table_of(seen(at=2), before))
    assert (gone.changed, gone.gone) == ({}, ["a"])


def test_permits_are_known_by_their_slots():
    """Two holders of one slot, of which one has a minority, are one permit."""
    found = tuple(
        PermitInspection(slot=slot, holder=who, since=EPOCH, ttl=9.0)
        for slot, who in [(0, "x"), (0, "y"), (3, "z")]
    )
    gpu = lock("gpu", held("x", kind="semaphore", permits=found), permits=found)
    row = table_of(seen(gpu), tables.NOTHING_YET).rows["gpu"]
    assert (row["permits"], row["readers"], row["kind"]) == (2, 0, "semaphore")
    full = wire.in_full(gpu, EPOCH, None)
    assert [each["slot"] for each in full["permits"]] == [0, 0, 3]
    assert [node["held"] for node in full["nodes"]] == [True] * 3


def test_of_too_many_locks_the_same_ones_are_shown(monkeypatch):
    """A search finds others each time: those are not granted, and the ones before not released."""
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    a, b, c, d = (lock(name, held()) for name in "abcd")
    before = table_of(truncated(a, b), tables.NOTHING_YET)
    found = truncated(c, d, at=1)
    assert tables.not_found(found, before) == ["a", "b"]
    again = Survey(locks=(a, lock("b", {}, 0)), truncated=False, silent=(), at=EPOCH + 1)
    now = table_of(found, before, again)
    assert list(now.rows) == ["a", "c"]
    assert now.truncated
    assert +Counter(change_of(before, now).happened) == {"released": 1, "extended": 1}
    fits = table_of(seen(a, c, at=1), now)
    assert not fits.truncated
    assert change_of(fits, table_of(seen(a, c, d, at=1), fits)).happened["granted"] == 0
    assert table_of(seen(a, c, d, at=1), fits).truncated


def truncated(*locks: LockInspection, at: float = 0.0) -> Overview:
    """Make what was seen of too many locks."""
    found = seen(*locks, at=at)
    assert found.survey is not None
    return dataclasses.replace(found, survey=dataclasses.replace(found.survey, truncated=True))
