"""The lease itself: what cannot be done with it."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

from aioredlock_ng import LockTakenError
from tests.unit.worlds import TTL, sim, virtual, world


@virtual
async def test_a_lease_cannot_be_copied() -> None:
    """A copy that is collected would release what is still held."""
    async with world() as w, w.manager.lock("a") as lease:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                duplicate(lease)
        assert lease.held


@virtual
async def test_a_lease_has_one_body() -> None:
    """A second `async with` of the same lease is refused, and harms neither the lease nor its first body."""
    async with world() as w:
        lease = await w.manager.lock("a", ttl=TTL).acquire()
        async with lease:
            with pytest.raises(RuntimeError, match="has one already"):
                await lease.__aenter__()
            assert lease.held
        assert w.keys == [()] * 3


@virtual
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
        assert w.manager.statistics().refused > 6
        said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert [text.partition("of lock ")[2].partition(";")[0] for text in said] == [
            "'a' ('redlock:a')",
            "'b' ('redlock:b')",
        ]
