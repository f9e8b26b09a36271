"""A try that was granted, but of no use, is not repeated at the speed of the network (R13)."""

from __future__ import annotations

import contextlib

import pytest

from aioredlock_ng import QuorumUnavailableError, RetryPolicy
from tests.unit.worlds import ago, drawn_backoffs, put, virtual, world

STORM = 40
"""Tries in two seconds; a lock that is taken is asked for some seven times in that time."""


@virtual
async def test_nodes_that_cannot_agree_on_a_fence_are_not_stormed() -> None:
    """After a loss of memory that takes two seconds; each try's own release is no reason for the next one."""
    async with world(3, fencing=True) as w:
        put(w, "res", ago(-11.0), ago(-11.4), ago(-11.8))
        with contextlib.suppress(QuorumUnavailableError):
            await (await w.manager.lock("res", blocking_timeout=2.0).acquire()).release()
        assert 1 <= w.manager.statistics().uncertified <= STORM


@virtual
async def test_a_lock_that_is_always_won_too_late_is_not_stormed() -> None:
    """The grants come, but from so far that less than half of the ttl is left."""
    async with world(3, ttl=0.01, node_timeout=0.009, latency=0.0016) as w:
        with contextlib.suppress(QuorumUnavailableError):
            await w.manager.lock("res", blocking_timeout=2.0).acquire()
        assert 1 <= w.manager.statistics().refused <= STORM


@virtual
async def test_the_waits_after_tries_in_vain_grow_from_try_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is drawn from the interval of its own number, beginning with the shortest."""
    policy = RetryPolicy(base=0.01, cap=0.2)
    drawn = drawn_backoffs(monkeypatch, policy)
    async with world(3, retry=policy) as w:
        for node in w.nodes[1:]:
            node.refuse("OOM command not allowed")
        with contextlib.suppress(QuorumUnavailableError):
            await w.manager.lock("res", blocking_timeout=1.0).acquire()
        assert len(drawn) > 5
        assert drawn == list(range(len(drawn)))
