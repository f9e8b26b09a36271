"""Leases: what cannot be done with one, which ones `statistics().leases` lists."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioredlock_ng import LeaseStatistics, LockTakenError
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim
from tests.unit.worlds import LATENCY, TTL, make, world

AGE = 2 * LATENCY
"""Seconds that a lease is old when it is won."""


async def test_a_lease_has_one_body() -> None:
    """A second `async with` is refused, of an inner block's lease, too; it harms neither lease nor body."""
    async with world() as w:
        lock = w.manager.lock("a", reentrant=True)
        outer = await lock.acquire()
        async with outer, lock as inner:
            for lease in (outer, inner):
                with pytest.raises(RuntimeError, match="already was"):
                    await lease.__aenter__()
                assert lease.held
        assert w.keys == [()] * 3


async def test_a_key_without_expiry_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is met: one line for each lock, with the node and what to do (R16)."""
    async with world() as w:
        for name in ("a", "b"):
            w.occupy(name, None)
        for name in ("a", "a", "b"):
            before = sim().time()
            with pytest.raises(LockTakenError):
                await w.manager.lock(name, blocking_timeout=3).acquire()
            assert sim().time() - before >= 3, "so there was more than one try"
        said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert [text.partition("blocks lock ")[2].partition(";")[0] for text in said] == [
            "'a' ('redlock:a')",
            "'b' ('redlock:b')",
        ]


async def test_what_is_held_is_listed() -> None:
    """Names, label, fence and age, oldest first; an extension makes none younger."""
    async with world() as w:
        first = await w.manager.lock("b", "a", label="pair").acquire()
        await asyncio.sleep(TTL)
        second = await w.manager.lock("c").acquire()
        old, new = w.manager.statistics().leases
        assert (old.names, old.label, old.fence) == (("a", "b"), "pair", first.fence)
        assert old.age == pytest.approx(TTL + 2 * AGE)
        assert new == LeaseStatistics(names=("c",), label="mutex", fence=second.fence, age=pytest.approx(AGE))
        await first.release()
        assert [lease.names for lease in w.manager.statistics().leases] == [("c",)]
        await second.release()
        assert w.manager.statistics().leases == make([MemoryNode()]).statistics().leases == ()
    async with world(fencing=False) as w, w.manager.lock("a"):
        assert [lease.fence for lease in w.manager.statistics().leases] == [None]
