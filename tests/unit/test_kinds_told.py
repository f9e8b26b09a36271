"""Hooks, log and statistics name the kind of each lease."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import get_args

import pytest

from aioredlock_ng import ExtensionPolicy, LockTakenError, events
from aioredlock_ng.testing import lose
from tests.unit.tasks import in_task
from tests.unit.test_log import logged
from tests.unit.traces import Heard
from tests.unit.worlds import LATENCY, TTL, opened, world

OF_LOCKS = {event.__name__ for event in get_args(events.Event) if issubclass(event, events.LockEvent)}
"""The events that are about a lock."""


def of_locks(heard):
    """Return the events about locks."""
    return [event for _, event in heard.told if type(event).__name__ in OF_LOCKS]


def about_locks(heard):
    """Return the events about locks, each with its kind."""
    return [(type(event).__name__, event.kind) for event in of_locks(heard)]


def lock(manager, kind, **options):
    """Describe a lock of a kind."""
    if kind in ("mutex", "fair"):
        return manager.lock("a", fair=kind == "fair", **options)
    return getattr(manager.rwlock("a", **options), kind)()


@pytest.mark.parametrize("kind", ["mutex", "fair", "read", "write"])
async def test_every_event_and_record_about_a_lock_says_its_kind(kind):
    """From the call to the end, however it ends; what is about no lock has none."""
    heard = Heard()
    rival = "write" if kind == "read" else kind
    with logged() as log:
        async with world(hooks=[heard]) as w, opened(w.nodes, seed=2, hooks=[heard]) as other:
            async with lock(w.manager, kind, extension=ExtensionPolicy(max_extensions=2)):
                w.nodes[0].flush()
                end = await in_task(lock(other, rival, blocking_timeout=TTL).acquire)
                assert isinstance(end.error, LockTakenError)
            lease = await lock(w.manager, kind).acquire()
            lose(w.manager, "a")
            await lease.release()
            w.occupy("a", None)
            with pytest.raises(LockTakenError):
                await lock(w.manager, kind, blocking_timeout=3).acquire()
    told = about_locks(heard)
    assert {of for _, of in told} == {kind, rival}
    assert {name for name, of in told if of == kind} == OF_LOCKS - {"Downgraded", "NotExtended"}
    assert events.Released(names=("a",), label="", held_for=1.0).kind == "mutex"
    about = [(record.__dict__, record.getMessage()) for record in log.records]
    assert {of["kind"] for of, _ in about if of["lock"]} == {kind, rival}
    assert {of["kind"] for of, _ in about if not of["lock"]} == {None}
    for words in ("acquired in", "extended (", "extended 1 of 2", "restoring it", "released after", "lost",
                  "still waiting", "without expiry", "was not acquired"):  # fmt: skip
        assert any(words in line and of["kind"] == kind for of, line in about), words


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
