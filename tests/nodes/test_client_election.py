"""Elections over users' own clients, which hear no notices: observers look from time to time (R17, R32)."""

from __future__ import annotations

import contextlib

import pytest

from aioredlock_ng import Leader, LockManager
from aioredlock_ng._locks import observation


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Have observers look as often as they can."""
    monkeypatch.setattr(observation, "LOOK_SELDOM", 0.01)
    monkeypatch.setattr(observation, "LOOK_EVERY", 0.02)


@pytest.mark.parametrize("options", [{}, {"protocol": 3}, {"decode_responses": True}], ids=str)
async def test_candidates_and_observers(shared_nodes, client, options):
    """A leader is announced, heard of by another process, and gone when it has resigned."""
    urls = shared_nodes.urls
    made = [[client(url, **options) for url in urls] for _ in range(2)]
    async with (
        LockManager(made[0], node_timeout=5) as first,
        LockManager(made[1], node_timeout=5) as second,
        contextlib.aclosing(second.election("scheduler").observe()) as news,
    ):
        assert await anext(news) is None
        for label in ("zoë", "b"):
            async with first.election("scheduler", holder=label).campaign() as leadership:
                assert await anext(news) == Leader(leadership.term, label)
                assert await second.election("scheduler").leader() == Leader(leadership.term, label)
            assert await anext(news) is None
