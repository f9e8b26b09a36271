"""Surveys and diagnoses over five masters: in memory, real servers by URL, and by clients."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from aioredlock_ng import LockManager, Survey
from tests.conformance.masters import WRONG, Masters, lock_keys
from tests.conformance.tools import FOREIGN
from tests.servers import eventually


def found(survey: Survey) -> dict[str, tuple[str, int]]:
    """Return names, states, and on how many nodes."""
    return {lock.name: (lock.state, lock.held_by) for lock in survey.locks}


async def everywhere(masters: Masters, *keys: bytes) -> None:
    """Wait until every master holds the keys: an acquire returns when a majority does."""
    await eventually(lambda: all(set(keys) <= set(lock_keys(master)) for master in masters))


async def test_a_survey_finds_locks_and_what_is_in_their_way(masters, make_manager):
    """Locks of any client, leftovers, other programs' keys, and keys of another type; not our own keys."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    for master in masters:
        master.put([(b"redlock:fence:{redlock:a}", b"7", 60.0)])
        master.put([(b"redloc", b"x", None), (b"other:a", b"x", None), (b"redlock:foreign", FOREIGN, 60.0)])
    masters[0].put([(b"redlock:left", FOREIGN, 60.0), (b"redlock:list", WRONG, None)])
    async with first.lock("a", ttl=30), second.lock("b", ttl=30):
        await everywhere(masters, b"redlock:a", b"redlock:b")
        survey = await first.survey()
        assert found(survey) == {
            "a": ("held", 5),
            "b": ("held", 5),
            "foreign": ("held", 5),
            "left": ("partial", 1),
            "list": ("partial", 0),
        }
        assert list(found(survey)) == sorted(found(survey))
        assert [lock.holder for lock in survey.locks] == ["first", "second", None, None, None]
        # Word for word: how servers wrap the errors of scripts differs, and this text identifies them.
        reason = "WRONGTYPE Operation against a key holding the wrong kind of value"
        assert survey.locks[4].nodes[0].reason == reason
        for lock in survey.locks[:2]:
            assert lock.since is not None
            assert abs(survey.at - lock.since) < 60
            assert lock.ttl is not None
            assert 20 < lock.ttl <= 30
        assert (survey.truncated, survey.silent) == (False, ())


@pytest.mark.parametrize("prefix", ["a*b", "[abc]", "a?c", "back\\slash:", "ünï:", "ends\\", "{meta}"])
async def test_a_prefix_means_itself(prefix, masters, make_manager):
    """Whatever is special in the servers' patterns: only keys that really begin so are found."""
    for master in masters:
        strangers = (b"aXb1", b"a1", b"abc1", b"back*slash:1", b"backslash:1", b"end1", b"meta1", b"m")
        master.put([(key, FOREIGN, None) for key in strangers])
    manager = await make_manager(prefix=prefix)
    async with manager.lock("1"), manager.lock("x*"):
        await everywhere(masters, (prefix + "1").encode(), (prefix + "x*").encode())
        assert found(await manager.survey()) == {"1": ("held", 5), "x*": ("held", 5)}


# -- by clients --------------------------------------------------------------------------------------


@pytest.fixture
async def by_clients(shared_nodes):
    """Give a manager over clients that decode replies."""
    clients = [Redis.from_url(url, decode_responses=True) for url in shared_nodes.urls]
    async with LockManager(clients, node_timeout=2.0) as manager:
        yield manager
    for client in clients:
        await client.aclose()
