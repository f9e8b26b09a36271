"""Hooks, log and statistics name the kind of each lease."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import get_args

import pytest

from aioredlock_ng import events
from tests.unit.test_log import logged
from tests.unit.traces import Heard
from tests.unit.worlds import LATENCY, TTL, world

OF_LOCKS = {event.__name__ for event in get_args(events.Event) if issubclass(event, events.LockEvent)}
"""The events that are about a lock."""


def of_locks(heard):
    """Return the events about locks."""
    return [event for _, event in heard.told if type(event).__name__ in OF_LOCKS]


def about_locks(heard):
    """Return the events about locks, each with its kind."""
    return [(type(event).__name__, event.kind) for event in of_locks(heard)]


async def test_a_downgrade_is_told_and_what_follows_is_a_readers():
    """Once, with how long it wrote, and at DEBUG; a lease that reads already is downgraded no more."""
    heard = Heard()
    with logged() as log:
        async with world(hooks=[heard]) as w, w.manager.rwlock("a", label="x").write() as lease:
            await asyncio.sleep(TTL / 4)
            await lease.downgrade()
            await lease.downgrade()
            await asyncio.sleep(TTL / 2)
    kinds = ["write", "read", "read", "read", "read"]
    names = ["Acquired", "Downgraded", "Extended", "Extended", "Released"]
    assert about_locks(heard) == list(zip(names, kinds, strict=True))
    _, downgraded, *_, released = of_locks(heard)
    wrote = pytest.approx(TTL / 4 + 2 * LATENCY)
    assert downgraded == events.Downgraded(
        names=("a",), label="x", held_for=wrote, kind="read", lease=released.lease
    )
    assert released.held_for == pytest.approx(TTL * 3 / 4, abs=0.1)
    (line,) = [record for record in log.records if "downgraded" in record.getMessage()]
    assert (line.levelno, line.__dict__["kind"], line.__dict__["lock"]) == (logging.DEBUG, "read", "a")


async def test_a_hook_is_told_of_its_manager_and_does_not_keep_it():
    """It can ask for the statistics at any time, until the manager is gone."""

    class Attached:
        def attach(self, statistics):
            given.append(statistics)

    given = []
    async with world(hooks=[Attached()]) as w, w.manager.lock("a"):
        (statistics,) = given
        assert statistics().held == 1
    del w
    gc.collect()
    assert statistics() is None
