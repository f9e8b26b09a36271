"""The lock itself over five masters: the same tests in memory and on real servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    QuorumUnavailableError,
)
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._locks.lease import ReleaseOutcome
from tests.conformance.tools import FOREIGN, WRONG, Masters
from tests.servers import eventually

KEY = b"redlock:res"
PLAIN = ExtensionPolicy.off()
SLACK = 5.0
"""Seconds that a test may take between two looks at a ttl."""


@pytest.fixture
async def manager(make_manager: Callable[..., Any]) -> LockManager:
    """Give one running manager."""
    return await make_manager(holder="first")


def values(masters: Masters, key: bytes = KEY) -> list[Any]:
    """Return what every master holds under a key."""
    return [master.look([key])[0][0] for master in masters]


def ttls(masters: Masters, key: bytes = KEY) -> list[float | None]:
    """Return how long every master will hold a key."""
    return [master.look([key])[0][1] for master in masters]


def near(seen: Sequence[float | None], wanted: float) -> bool:
    """Return whether these ttls are the wanted one, but for time that has passed."""
    return all(ttl is not None and wanted - SLACK < ttl <= wanted for ttl in seen)


def put(masters: Masters, value: object, ttl: float | None = None, key: bytes = KEY) -> None:
    """Put the same under a key of several masters."""
    for master in masters:
        master.put([(key, value, ttl)])


async def gone(masters: Masters) -> None:
    """Wait until no master holds anything: a block ends when a majority has released."""
    await eventually(lambda: not any(master.locks() for master in masters), what="every key is gone")


async def test_an_acquire_sets_one_fresh_value_everywhere(masters: Masters, manager: LockManager) -> None:
    """It is random, names its holder, and lives for the ttl; the next one is another."""
    seen = set()
    for _ in range(2):
        lease = await manager.lock("res", ttl=30).acquire()
        assert sum(vote.vote is Vote.GRANTED for vote in lease.votes) >= 3
        await eventually(lambda: None not in values(masters), what="the last node has set it, too")
        (value,) = set(values(masters))
        assert re.fullmatch(rb"[0-9a-f]{40}:[0-9]{13}:first", value)
        assert near(ttls(masters), 30)
        assert 25 < lease.remaining <= 30 - 0.302
        seen.add(value)
        await lease.release()
    assert len(seen) == 2


async def test_a_release_deletes_everywhere_and_says_so(masters: Masters, manager: LockManager) -> None:
    """Five nodes held it; told twice, the report is the same."""
    lease = await manager.lock("res").acquire()
    report = await lease.release()
    assert report.count(ReleaseOutcome.RELEASED) == 5
    assert await lease.release() == report
    assert values(masters) == [None] * 5
    assert not lease.held


async def test_a_release_leaves_what_is_not_ours(masters: Masters, manager: LockManager) -> None:
    """Where another client's key took our place, or nothing is, it was not held."""
    lease = await manager.lock("res", extension=PLAIN).acquire()
    await eventually(lambda: None not in values(masters))
    put(masters[:1], FOREIGN, 30)
    put(masters[1:2], None)
    report = await lease.release()
    outcomes = [node.outcome for node in report.nodes]
    assert outcomes == [ReleaseOutcome.NOT_HELD] * 2 + [ReleaseOutcome.RELEASED] * 3
    assert values(masters) == [FOREIGN] + [None] * 4


async def test_a_holder_keeps_others_out(masters: Masters, make_manager: Callable[..., Any]) -> None:
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
        assert near(ttls(masters), 30)
    async with second.lock("res", blocking=False) as lease:
        assert lease.held


async def test_a_waiting_acquire_gets_the_lock_when_it_is_free(
    masters: Masters, make_manager: Callable[..., Any]
) -> None:
    """The holder of another process releases, and the waiter is next."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    lease = await first.lock("res", ttl=30).acquire()
    waiting = asyncio.create_task(second.lock("res", blocking_timeout=20).acquire())
    await eventually(lambda: second.statistics().refused >= 2, what="it has tried twice")
    assert not waiting.done()
    await lease.release()
    async with await waiting as won:
        assert won.held
        await eventually(lambda: None not in values(masters))
        assert all(value.endswith(b":second") for value in values(masters))


async def test_contenders_never_overlap(make_manager: Callable[..., Any]) -> None:
    """Three managers with two tasks each on one name: one at a time, and every one gets its turn."""
    managers = [await make_manager(holder=str(i)) for i in range(3)]
    inside, turns = 0, 0

    async def contend(manager: LockManager) -> None:
        nonlocal inside, turns
        for _ in range(3):
            async with manager.lock("res", blocking_timeout=30):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1
                turns += 1

    await asyncio.gather(*(contend(manager) for manager in managers * 2))
    assert turns == 18


async def test_an_extension_moves_the_end_everywhere_and_never_nearer(
    masters: Masters, manager: LockManager
) -> None:
    """Asked for more it lives longer; asked for less it lives as long as before."""
    async with manager.lock("res", ttl=30, extension=PLAIN) as lease:
        await lease.extend(90)
        await eventually(lambda: near(ttls(masters), 90), what="all five extended it")
        assert 80 < lease.remaining < 90
        valid_until = lease.valid_until
        await lease.extend(30)
        assert lease.valid_until == valid_until
        assert near(ttls(masters), 90)
        assert lease.extensions == 2


async def test_the_watchdog_keeps_a_lock_beyond_its_ttl(
    masters: Masters, make_manager: Callable[..., Any]
) -> None:
    """While the block runs the keys do not expire; afterwards they are gone."""
    manager = await make_manager(node_timeout=0.1)
    loop = asyncio.get_running_loop()
    async with manager.lock("res", ttl=0.5) as lease:
        began = loop.time()
        (value,) = {value for value in values(masters) if value is not None}
        await eventually(lambda: loop.time() > began + 0.75, what="the first ttl is over")
        assert lease.held
        assert lease.extensions >= 2
        assert values(masters).count(value) >= 3
    await gone(masters)


async def test_a_plain_lease_ends_with_its_ttl(masters: Masters, make_manager: Callable[..., Any]) -> None:
    """It is not extended: its holder knows by the clock, before another client can get in."""
    first, second = await make_manager(node_timeout=0.1), await make_manager(node_timeout=0.1)
    lease = await first.lock("res", ttl=0.3, extension=PLAIN).acquire()
    next_lease = await second.lock("res", ttl=60, blocking_timeout=60).acquire()
    assert not lease.held
    with pytest.raises(LockLostError) as caught:
        lease.check()
    assert caught.value.reason is LossReason.EXPIRED
    report = await lease.release()
    assert report.count(ReleaseOutcome.NOT_HELD) >= 3  # elsewhere its key may have come, and end, later
    assert report.count(ReleaseOutcome.NOT_HELD) + report.count(ReleaseOutcome.RELEASED) == 5
    assert next_lease.held
    await next_lease.release()


async def test_several_names_are_all_or_nothing(masters: Masters, make_manager: Callable[..., Any]) -> None:
    """A name that is taken keeps the others free; and all of them are taken and freed together."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    keys = [b"redlock:a", b"redlock:b", b"redlock:c"]
    async with first.lock("b", ttl=30):
        await eventually(lambda: None not in values(masters, keys[1]))
        with pytest.raises(LockTakenError) as caught:
            await second.lock("c", "a", "b", blocking=False).acquire()
        assert 20 < caught.value.retry_after <= 30
        assert all(master.locks() == [keys[1]] for master in masters)
    await gone(masters)  # else a node that is told late refuses
    async with second.lock("c", "a", "b", "a", ttl=30) as lease:
        assert lease.names == ("a", "b", "c")
        await eventually(lambda: all(master.locks() == keys for master in masters))
        assert len({value for key in keys for value in values(masters, key)}) == 1
        for name in ("a", "b", "c"):
            assert await first.lock(name).try_acquire() is None
        await lease.extend(90)
        await eventually(lambda: all(near(ttls(masters, key), 90) for key in keys))
    await gone(masters)


async def test_several_names_of_which_one_is_lost_are_not_extended(
    masters: Masters, manager: LockManager
) -> None:
    """They are one lock: with one name taken on a majority it is lost as a whole."""
    lease = await manager.lock("a", "b", extension=PLAIN).acquire()
    await eventually(lambda: None not in values(masters, b"redlock:b"))
    put(masters[:3], FOREIGN, 30, b"redlock:b")
    with pytest.raises(LockLostError) as caught:
        await lease.extend(60)
    assert caught.value.reason is LossReason.REFUSED
    await lease.release()
    assert values(masters, b"redlock:a") == [None] * 5
    assert values(masters, b"redlock:b") == [FOREIGN] * 3 + [None] * 2


async def test_inspection_names_the_holder(masters: Masters, make_manager: Callable[..., Any]) -> None:
    """Per node: held or free, how long, by which holder, and whether it is ours; never the owner value."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    assert [entry.held for entry in await first.inspect("res")] == [False] * 5
    lease = await first.lock("res", ttl=30).acquire()
    await eventually(lambda: None not in values(masters))
    put(masters[3:4], FOREIGN)
    put(masters[4:], WRONG)
    for manager, ours in ((first, True), (second, False)):
        entries = await manager.inspect("res")
        assert [entry.held for entry in entries] == [True] * 4 + [None]
        assert [entry.ours for entry in entries] == [ours] * 3 + [False] * 2
        assert [entry.holder for entry in entries] == ["first"] * 3 + [None] * 2
        assert near([entry.ttl for entry in entries[:3]], 30)
        assert [entry.ttl for entry in entries[3:]] == [None] * 2
        assert [entry.wrong_type for entry in entries] == [False] * 4 + [True]
        assert values(masters)[0][:40].decode() not in repr(entries)
    await lease.release()


async def test_a_lock_taken_by_force_is_free_for_others(
    masters: Masters, make_manager: Callable[..., Any]
) -> None:
    """An administrator gets a report of what was there, and the holder is refused its next extension."""
    first, second = await make_manager(holder="first"), await make_manager(holder="second")
    lease = await first.lock("res", ttl=30, extension=PLAIN).acquire()
    await eventually(lambda: None not in values(masters))
    entries = await second.force_release("res")
    assert [(entry.held, entry.holder) for entry in entries] == [(True, "first")] * 5
    assert values(masters) == [None] * 5
    taken = await second.lock("res").try_acquire()
    assert taken is not None
    with pytest.raises(LockLostError) as caught:
        await lease.extend()
    assert caught.value.reason is LossReason.REFUSED
    assert not lease.held
    await lease.release()
    assert [entry.held for entry in await second.force_release("other")] == [False] * 5
    await taken.release()


async def test_a_key_lost_on_a_majority_is_a_lost_lock(masters: Masters, manager: LockManager) -> None:
    """The body is cancelled and ends in LockLostError; nothing is resurrected."""

    async def lose() -> None:
        async with manager.lock("res", ttl=2):
            await eventually(lambda: None not in values(masters))
            put(masters[:3], None)
            await asyncio.sleep(60)

    with pytest.raises(LockLostError) as caught:
        await lose()
    assert caught.value.reason is LossReason.REFUSED
    assert sum(vote.vote is Vote.REFUSED for vote in caught.value.votes) >= 3
    await gone(masters)


async def test_a_key_lost_on_a_minority_is_given_back(masters: Masters, manager: LockManager) -> None:
    """The next extension is won and tops up the nodes that had lost it (R9)."""
    async with manager.lock("res", ttl=30, extension=PLAIN) as lease:
        await eventually(lambda: None not in values(masters))
        (value,) = set(values(masters))
        put(masters[:2], None)
        await lease.extend(60)
        if None in values(masters):  # the round was won before both had answered
            await lease.extend(60)
        await eventually(lambda: values(masters) == [value] * 5, what="it is given back")
        assert near(ttls(masters), 60)
    await gone(masters)


async def test_a_key_without_expiry_is_a_holder_like_any(masters: Masters, manager: LockManager) -> None:
    """Another program's string keeps us out for as long as it is there, which is not known."""
    put(masters, FOREIGN)
    with pytest.raises(LockTakenError) as caught:
        await manager.lock("res", blocking=False).acquire()
    assert caught.value.retry_after is None
    assert values(masters) == [FOREIGN] * 5
    put(masters, None)
    async with manager.lock("res", blocking=False) as lease:
        assert lease.held


async def test_a_wrong_type_on_a_majority_fails_at_once(masters: Masters, manager: LockManager) -> None:
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


async def test_a_wrong_type_on_a_minority_costs_its_votes(masters: Masters, manager: LockManager) -> None:
    """The others are enough to acquire, extend and release."""
    put(masters[:2], WRONG)
    async with manager.lock("res", ttl=30) as lease:
        await lease.extend(60)
    await eventually(lambda: values(masters) == [WRONG] * 2 + [None] * 3)


async def test_scripts_that_all_servers_forgot_are_not_missed(masters: Masters, manager: LockManager) -> None:
    """SCRIPT FLUSH at any time changes nothing for a lock."""
    async with manager.lock("a", "b", ttl=30) as lease:
        for master in masters:
            master.forget_scripts()
        await lease.extend(60)
        for master in masters:
            master.forget_scripts()
        assert [entry.held for entry in await manager.inspect("a")] == [True] * 5
        for master in masters:
            master.forget_scripts()
    await gone(masters)


async def test_closing_the_manager_releases_what_it_holds(
    masters: Masters, make_manager: Callable[..., Any]
) -> None:
    """Leases that were not released do not stay for their ttl."""
    manager = await make_manager()
    leases = [await manager.lock(name, ttl=60).acquire() for name in "abc"]
    await manager.aclose()
    assert not any(lease.held for lease in leases)
    assert all(master.locks() == [] for master in masters)


async def test_a_frozen_minority_keeps_nothing(masters: Masters, manager: LockManager) -> None:
    """Two of five stand still while a lock comes and goes: when they go on, they hold nothing of it."""
    for master in masters[:2]:
        master.pause()
    try:
        async with manager.lock("res", ttl=60):
            await eventually(lambda: None not in values(masters[2:]))
        await gone(masters[2:])
    finally:
        for master in masters[:2]:
            master.resume()
    await gone(masters)
