"""The lock itself over five masters: the same tests in memory and on real servers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aioredlock_ng import ConfigurationError, ExtensionPolicy, LockTakenError, QuorumUnavailableError
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._locks.lease import ReleaseOutcome
from tests.conformance.masters import WRONG, Masters, lock_keys
from tests.conformance.tools import FOREIGN, lives
from tests.servers import eventually

KEY = b"redlock:res"
PLAIN = ExtensionPolicy.off()


@pytest.fixture
async def manager(make_manager):
    """Give one running manager."""
    return await make_manager(holder="first")


def values(masters: Masters, key: bytes = KEY) -> list[Any]:
    """Return what every master holds under a key."""
    return [master.look([key])[0][0] for master in masters]


def live(masters: Masters, wanted: float, key: bytes = KEY) -> bool:
    """Return whether every master will hold a key for so long, but for time that has passed."""
    return all(lives(master.look([key])[0][1], wanted) for master in masters)


def put(masters: Masters, value: object, ttl: float | None = None, key: bytes = KEY) -> None:
    """Put the same under a key of several masters."""
    for master in masters:
        master.put([(key, value, ttl)])


async def gone(masters: Masters) -> None:
    """Wait until no master holds anything: a block ends when a majority has released."""
    await eventually(lambda: not any(lock_keys(master) for master in masters), what="every key is gone")


async def test_an_acquire_sets_one_fresh_value_everywhere(masters, manager):
    """It is random, names its holder, and lives for the ttl; a release deletes it; the next one is another."""
    seen = set()
    for _ in range(2):
        lease = await manager.lock("res", ttl=30).acquire()
        assert sum(vote.vote is Vote.GRANTED for vote in lease.votes) >= 3
        await eventually(lambda: None not in values(masters), what="the last node has set it, too")
        (value,) = set(values(masters))
        assert re.fullmatch(rb"[0-9a-f]{40}:[0-9]{13}:first", value)
        assert live(masters, 30)
        assert 25 < lease.remaining <= 30 - 0.302
        seen.add(value)
        report = await lease.release()
        assert report.count(ReleaseOutcome.RELEASED) == 5
        assert await lease.release() == report
        assert values(masters) == [None] * 5
        assert not lease.held
    assert len(seen) == 2


async def test_a_holder_keeps_others_out(masters, make_manager):
    """They hear what is in the way for how long, and leave nothing behind."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    async with first.lock("res", ttl=30):
        await eventually(lambda: None not in values(masters))
        held = values(masters)
        assert await second.lock("res").try_acquire() is None
        with pytest.raises(LockTakenError) as caught:
            await second.lock("res", blocking=False).acquire()
        assert 20 < caught.value.retry_after <= 30
        refused = [vote for vote in caught.value.votes if vote.vote is Vote.REFUSED]
        assert len(refused) >= 3
        assert all(20 < vote.retry_after <= 30 for vote in refused if vote.retry_after is not None)
        assert values(masters) == held
        assert live(masters, 30)
    async with second.lock("res", blocking=False) as lease:
        assert lease.held


async def test_several_names_are_all_or_nothing(masters, make_manager):
    """A name that is taken keeps the others free; and all of them are taken and freed together."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    keys = [b"redlock:a", b"redlock:b", b"redlock:c"]
    async with first.lock("b", ttl=30):
        await eventually(lambda: None not in values(masters, keys[1]))
        with pytest.raises(LockTakenError) as caught:
            await second.lock("c", "a", "b", blocking=False).acquire()
        assert 20 < caught.value.retry_after <= 30
        assert all(lock_keys(master) == [keys[1]] for master in masters)
    await gone(masters)  # else a node that is told late refuses
    async with second.lock("c", "a", "b", "a", ttl=30) as lease:
        assert lease.names == ("a", "b", "c")
        await eventually(lambda: all(lock_keys(master) == keys for master in masters))
        assert len({value for key in keys for value in values(masters, key)}) == 1
        for name in ("a", "b", "c"):
            assert await first.lock(name).try_acquire() is None
        await lease.extend(90)
        await eventually(lambda: all(live(masters, 90, key) for key in keys))
    await gone(masters)


async def test_a_key_without_expiry_is_a_holder_like_any(masters, manager):
    """Another program's string keeps us out for as long as it is there, which is not known."""
    put(masters, FOREIGN)
    with pytest.raises(LockTakenError) as caught:
        await manager.lock("res", blocking=False).acquire()
    assert caught.value.retry_after is None
    assert values(masters) == [FOREIGN] * 5
    put(masters, None)
    async with manager.lock("res", blocking=False) as lease:
        assert lease.held


async def test_a_wrong_type_on_a_majority_fails_at_once(masters, manager):
    """Waiting would not help: the error names the fault, with what each node said, and the values stay."""
    put(masters[:3], WRONG)
    rw = manager.rwlock("res")
    for lock, wanted in (
        (manager.lock("res"), "mutex"),
        (rw.read(), "read lock"),
        (rw.write(), "write lock"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await asyncio.wait_for(lock.acquire(), 60)
        assert str(caught.value) == (
            f"lock 'res' is wanted as a {wanted}, but on 3 of 5 nodes the key 'redlock:res' holds a list, "
            "which is no lock of this package"
        )
        refusal = caught.value.__cause__
        assert isinstance(refusal, QuorumUnavailableError)
        assert all("WRONGTYPE" in vote.reason for vote in refusal.votes[:3])
    await eventually(lambda: values(masters) == [WRONG] * 3 + [None] * 2)
