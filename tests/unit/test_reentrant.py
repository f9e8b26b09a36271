"""Reentrant locks: a task goes into a lock that it is inside of, and no other task does (R27)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aioredlock_ng import Lease, Lock, LossReason, ReleaseOutcome
from aioredlock_ng.errors import LockLostError, LockTakenError, WouldDeadlockError
from aioredlock_ng.events import Acquired, NodeChanged, Released
from aioredlock_ng.testing import lose
from tests.unit.tasks import cycle, in_task, sim, until
from tests.unit.traces import Heard
from tests.unit.worlds import GRACE, PLAIN, TTL, World, world

MAX_DEPTH = 100


def asked(w: World) -> list[int]:
    """Return how many commands each node has executed."""
    return [len(node.executed) for node in w.nodes]


@contextlib.asynccontextmanager
async def reentrant(**options: Any) -> AsyncIterator[tuple[World, Lock]]:
    """Open a world with a reentrant lock; at the end no node has a key."""
    async with world() as w:
        yield w, w.manager.lock("a", reentrant=True, **options)
        assert w.keys == [()] * 3


@contextlib.contextmanager
def lost() -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect that the lock is lost; the task is not cancelled any more then."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (how it ended is the question)
        yield caught
    assert isinstance(caught.value, LockLostError)
    assert asyncio.current_task().cancelling() == 0


def lock_of(w: World, kind: str, *names: str, **options: Any) -> Any:
    """Describe a lock: ``lock``, ``read`` or ``write``."""
    if kind == "lock":
        return w.manager.lock(*names, **options)
    return getattr(w.manager.rwlock(*names, **options), kind)()


async def outcomes(lease: Lease) -> set[ReleaseOutcome]:
    """Release a lease and return what the nodes said."""
    return {node.outcome for node in (await lease.release()).nodes}


# -- going in again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lock", "read", "write"])
async def test_an_inner_acquire_asks_no_node_and_has_the_same_lease(kind):
    """No I/O and no time: the same fence and validity; the end of the outermost block releases."""
    async with world() as w:
        lock = lock_of(w, kind, "a", reentrant=True)
        async with lock as outer:
            before, began = asked(w), sim().time()
            async with lock as inner, lock_of(w, kind, "a", reentrant=True, ttl=1) as third:
                assert sim().time() == began
                for lease in (inner, third):
                    assert (lease.fence, lease.names, lease.mode) == (outer.fence, ("a",), outer.mode)
                    assert lease.valid_until == outer.valid_until
                    assert lease.held
                assert w.manager.statistics().held == 1
            assert [lease.held for lease in (outer, inner, third)] == [True, False, False]
            assert asked(w) == before
            assert w.keys != [()] * 3
        assert not outer.held
        assert w.keys == [()] * 3
        async with lock as later:
            assert later.held


async def test_only_what_asks_for_it_goes_in_again():
    """A plain lock inside a reentrant one would wait for itself; a reentrant one goes into a plain one."""
    async with world() as w:
        async with w.manager.lock("a", reentrant=True) as outer:
            with pytest.raises(WouldDeadlockError, match="reentrant=True"):
                await w.manager.lock("a").acquire()
            assert await w.manager.lock("a").try_acquire() is None
            outer.check()
        async with w.manager.lock("a") as plain:
            before = asked(w)
            async with w.manager.lock("a", reentrant=True) as inner:
                assert inner.fence == plain.fence
            assert plain.held
            assert asked(w) == before
            late = await w.manager.lock("a", reentrant=True).acquire()
        assert not late.held, "a plain lock goes with its own block"
        assert w.keys == [()] * 3
        assert await outcomes(late) == {ReleaseOutcome.RELEASED}


# -- whose right it is -------------------------------------------------------------------------------


async def test_the_right_is_the_task_s_and_not_the_context_s():
    """A child inherits the context of the block, and waits until the block has ended."""
    async with reentrant() as (_, lock):
        async with lock as outer:
            child = asyncio.create_task(lock.acquire())
            async with lock:
                await asyncio.sleep(1)
            await asyncio.sleep(1)
            assert not child.done()
            assert await asyncio.create_task(lock.try_acquire()) is None
            outer.check()
        lease = await child
        assert lease.fence > outer.fence
        await lease.release()


async def test_a_lease_that_no_task_has_entered_is_not_reentrant():
    """It may be another task's business by now.  Entered, it is; when its block has ended, no more."""
    async with world() as w:
        lock = w.manager.lock("a", reentrant=True, blocking_timeout=0.5)
        lease = await lock.acquire()
        with pytest.raises(LockTakenError):
            await lock.acquire()
        async with lease, lock as inner:
            assert inner.fence == lease.fence
            kept = await lock.acquire()
        assert kept.held
        with pytest.raises(LockTakenError):
            await lock.acquire()
        assert await outcomes(kept) == {ReleaseOutcome.RELEASED}


async def test_leases_are_entered_by_the_task_that_is_inside():
    """Another task is refused, and may release; when the blocks have ended, it may enter what is left."""
    async with reentrant() as (_, lock):

        async def enter(lease: Lease) -> None:
            async with lease, lock as inner:
                assert inner.fence == lease.fence

        async with lock as outer:
            one, other = await lock.acquire(), await lock.acquire()
            assert isinstance((await in_task(lambda: enter(one))).error, RuntimeError)
            assert one.held
            released = await asyncio.create_task(other.release())
            assert {node.outcome for node in released.nodes} == {ReleaseOutcome.STILL_HELD}
            outer.check()
        assert (await in_task(lambda: enter(one))).error is None
        assert not one.held


# -- the count ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_last_release_releases_whatever_the_order(order):
    """Each lease ends with its own release, once; the lock ends with the last one."""
    async with reentrant() as (w, lock):
        leases: list[Lease] = []
        async with AsyncExitStack() as stack:
            leases.append(await stack.enter_async_context(lock))
            leases += [await lock.acquire(), await lock.acquire()]
            for place, index in enumerate(order, 1):
                lease = leases[index]
                for _ in range(2):  # idempotent: it lowers the count once
                    last = place == len(order)
                    expected = ReleaseOutcome.RELEASED if last else ReleaseOutcome.STILL_HELD
                    assert await outcomes(lease) == {expected}
                assert [one.held for one in leases] == [i not in order[:place] for i in range(3)]
                with lost() as told:
                    lease.check()
                assert told.value.reason is LossReason.RELEASED
                assert (w.keys == [()] * 3) is last
            assert await outcomes(leases[order[0]]) == {ReleaseOutcome.RELEASED}, "what is known by now"


async def test_so_deep_and_no_deeper():
    """A recursion without an end is an error of its own; what was released may be had again."""
    async with world() as w:
        for first in (w.manager.lock("a", reentrant=True), w.manager.lock("a")):
            lock = w.manager.lock("a", reentrant=True)
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(first)
                inner = [await lock.acquire() for _ in range(MAX_DEPTH - 1)]
                with pytest.raises(RuntimeError, match=f"already has {MAX_DEPTH} leases"):
                    await lock.acquire()
                await inner.pop().release()
                inner.append(await lock.acquire())
                for lease in inner:
                    assert await outcomes(lease) == {ReleaseOutcome.STILL_HELD}
            assert w.keys == [()] * 3


# -- several names -----------------------------------------------------------------------------------


async def test_one_lease_has_to_cover_all_of_the_names():
    """Fewer names go; not some held and some not, nor those of two leases, which have no common fence."""
    async with world() as w:
        async with w.manager.lock("a", "b", "c", reentrant=True) as outer:
            async with w.manager.lock("c", "b", reentrant=True) as inner:
                assert (inner.names, inner.fence) == (("b", "c"), outer.fence)
            async with w.manager.lock("b", reentrant=True) as inner:
                assert inner.name == "b"
                with pytest.raises(WouldDeadlockError, match="covers all of 'b', 'd'"):
                    await w.manager.lock("b", "d", reentrant=True).acquire()
            assert await w.manager.lock("b", "d", reentrant=True).try_acquire() is None
            async with w.manager.lock("d", reentrant=True):
                with pytest.raises(WouldDeadlockError):
                    await w.manager.lock("c", "d", reentrant=True).acquire()
            outer.check()
        assert w.keys == [()] * 3


# -- readers and writers -----------------------------------------------------------------------------


async def test_write_covers_read_and_read_does_not_cover_write():
    """Two tasks that both want to write what they read would wait for each other (R23)."""
    async with reentrant() as (w, _):
        lock = w.manager.rwlock("a", reentrant=True)
        async with lock.write() as outer:
            before = asked(w)
            async with lock.read() as inner, lock.write() as writer:
                assert inner.fence == writer.fence == outer.fence
                assert inner.mode == "write", "a view of the lease that there is"
            assert asked(w) == before
            with pytest.raises(WouldDeadlockError):
                await w.manager.lock("a", reentrant=True).acquire()
        async with lock.read() as outer:
            async with lock.read() as inner:
                assert inner.fence == outer.fence
            with pytest.raises(WouldDeadlockError, match="'a' as a write lock"):
                await lock.write().acquire()
            assert await lock.write().try_acquire() is None
            outer.check()


async def test_after_a_downgrade_the_task_reads():
    """An inner block's rights follow the lease; no lease is taken from an inner block that writes."""
    async with reentrant() as (w, _):
        lock = w.manager.rwlock("a", reentrant=True)
        for plain in (False, True):
            async with w.manager.rwlock("a", reentrant=not plain).write() as outer:
                async with lock.write() as inner:
                    for lease in (inner, outer):
                        with pytest.raises(RuntimeError, match="requested for writing"):
                            await lease.downgrade()
                reader = await lock.read().acquire()
                with pytest.raises(RuntimeError, match="requested for writing"):
                    await reader.downgrade()
                await outer.downgrade()
                assert (outer.mode, reader.mode) == ("read", "read")
                async with lock.read() as inner:
                    assert inner.fence == outer.fence
                with pytest.raises(WouldDeadlockError):
                    await lock.write().acquire()
                await reader.release()
        async with lock.write() as outer:
            reader = await lock.read().acquire()
            await outer.release()
            await reader.downgrade()
            assert reader.mode == "read"
            await reader.release()


async def test_an_inner_writer_cannot_tell_that_nothing_was_written():
    """Its own task may have; the outermost one can (R23)."""
    async with reentrant() as (w, _):
        lock = w.manager.rwlock("a", reentrant=True)
        async with lock.read() as read:
            pass
        async with lock.write(since=read) as outer:
            assert outer.unchanged is True
            async with lock.write(since=read) as inner, lock.write() as third:
                assert (inner.unchanged, third.unchanged) == (False, None)
            async with lock.read() as seen:
                with pytest.raises(ValueError, match="since must be a read lease"):
                    lock.write(since=seen)


# -- loss --------------------------------------------------------------------------------------------


async def test_the_outermost_block_alone_converts_the_cancellation():
    """Inner blocks let it pass: what is between them is cancelled, too, and the task is not any more then."""
    async with reentrant() as (w, lock):
        seen: list[type[BaseException]] = []

        async def block(depth: int) -> None:
            async with lock:
                try:
                    if depth:
                        await block(depth - 1)
                    else:
                        lose(w.manager, "a")
                        await asyncio.sleep(60)
                except BaseException as error:
                    seen.append(type(error))
                    raise

        with lost() as told:
            await block(2)
        assert told.value.reason is LossReason.REFUSED
        assert seen == [asyncio.CancelledError] * 3


@pytest.mark.parametrize("way", ["refused", "expired", "not noticed"])
@pytest.mark.parametrize("plain", [False, True], ids=["reentrant outside", "plain outside"])
async def test_a_lease_that_is_over_admits_no_inner_block(plain, way):
    """Refused by the nodes or expired, noticed or not: `LockLostError` at once, without asking the nodes."""
    async with reentrant() as (w, lock):
        reason = LossReason.REFUSED if way == "refused" else LossReason.EXPIRED
        with lost():
            async with w.manager.lock("a", reentrant=not plain, on_lost="raise") as outer:
                if way == "not noticed":
                    sleepless(outer)
                    await until(outer.valid_until + 0.001)
                else:
                    lose(w.manager, "a", reason)
                before = asked(w)
                several = w.manager.lock("a", "b", reentrant=True)
                for enter in (lock.acquire, several.acquire, lock.try_acquire):
                    with lost() as told:
                        await enter()
                    assert told.value.reason is reason
                assert asked(w) == before
        async with lock as lease:
            assert lease.held


def sleepless(lease: Lease) -> None:
    """Have the watchdog never look at a lease again."""
    for holding in lease._session.watchdog.leases:
        lease._session.watchdog.forget(holding)


async def test_a_clean_up_in_the_grace_goes_in_again():
    """The deadline has come, and the lock is ours until its validity ends: what cleans up may need it."""
    async with reentrant(extension=PLAIN) as (_, lock):
        began = sim().time()
        with lost():
            async with lock:
                try:
                    await asyncio.sleep(100)
                finally:
                    async with lock as inner:
                        inner.check()
                        await asyncio.sleep(GRACE * TTL / 2)  # cancelled once, not again
                        assert inner.held
                        cleaned = sim().time()
        assert cleaned == pytest.approx(began + TTL * (1 - GRACE / 2), abs=0.2)


# -- blocks that end in another order ----------------------------------------------------------------


@pytest.mark.parametrize("is_lost", [False, True], ids=["released", "lost"])
async def test_an_inner_block_may_end_last(is_lost):
    """It goes on under the deadline, and converts the cancellation; the lock is its own until it ends."""
    async with reentrant() as (w, lock):
        began = sim().time()
        with lost() if is_lost else contextlib.nullcontext():
            async with AsyncExitStack() as later:
                async with lock:
                    await later.enter_async_context(w.manager.lock("a", reentrant=True))
                assert w.keys != [()] * 3
                async with lock as again:
                    assert again.held
                if is_lost:
                    lose(w.manager, "a")
                await asyncio.sleep(1)
        assert sim().time() - began == pytest.approx(0 if is_lost else 1, abs=0.1)


async def test_the_outermost_block_converts_though_an_inner_one_is_open():
    """The cancellation was for it; the inner one, which ends later, leaves the error as it is."""
    async with reentrant() as (w, lock):
        with lost():
            async with AsyncExitStack() as later:
                with lost():
                    async with lock:
                        await later.enter_async_context(w.manager.lock("a", reentrant=True))
                        lose(w.manager, "a")
                        await asyncio.sleep(1)


# -- for how long ------------------------------------------------------------------------------------


async def test_a_longer_inner_ttl_counts_from_the_next_extension():
    """And a shorter one never shortens; `extend` of any of the leases extends them all."""
    async with world() as w:
        async with w.manager.lock("a", reentrant=True, ttl=6) as outer:
            before = outer.valid_until
            async with w.manager.lock("a", reentrant=True, ttl=30) as inner:
                assert outer.valid_until == before
                await asyncio.sleep(2.1)
                assert inner.extensions == 1
                assert outer.valid_until == inner.valid_until == pytest.approx(sim().time() + 30, abs=0.5)
            async with w.manager.lock("a", reentrant=True, ttl=1):
                await asyncio.sleep(15)
                assert outer.remaining > 20
        async with w.manager.lock("a", reentrant=True) as outer:
            async with w.manager.lock("a", reentrant=True) as inner:
                await inner.extend(40)
            assert outer.remaining > 39
            assert outer.extensions == 1


# -- messages ---------------------------------------------------------------------------------------


async def test_hooks_and_statistics_know_the_outermost_lease_alone():
    """Nothing was acquired inside; what is refused there was no wait for a lock either."""
    heard = Heard()
    async with world(hooks=[heard]) as w:
        lock = w.manager.lock("a", reentrant=True)
        async with lock, lock:
            await (await lock.acquire()).release()
            statistics = w.manager.statistics()
            assert (statistics.held, statistics.acquired, len(statistics.leases)) == (1, 1, 1)
        assert w.manager.statistics().released == 1
    assert [type(event) for _, event in heard.told if not isinstance(event, NodeChanged)] == [
        Acquired,
        Released,
    ]


async def test_a_task_that_may_wait_for_its_ancestor_is_warned_of(caplog):
    """Once for each lock; not of tasks from elsewhere, that need not wait, or wait for another block."""
    caplog.set_level(logging.WARNING, "aioredlock_ng")
    async with world() as w, w.process() as other:
        lock = w.manager.lock("a", reentrant=True)

        async def enter(**wait: float) -> None:
            await asyncio.sleep(wait.get("first", 0))
            await cycle(lock)

        elsewhere = asyncio.create_task(enter(first=0.5))
        async with lock:
            await asyncio.create_task(other.lock("a", reentrant=True).try_acquire())
            await asyncio.create_task(lock.try_acquire())
            await asyncio.sleep(1)
        await elsewhere
        async with lock:
            outlives = asyncio.create_task(enter(first=1))
        held = await asyncio.create_task(w.manager.lock("b").acquire())
        async with lock:
            of_another = asyncio.create_task(w.manager.lock("b", reentrant=True).acquire())
            await asyncio.sleep(5)
            await held.release()
            await (await of_another).release()
        await outlives
        assert not caplog.records
        for names in (("a",), ("a",), ("a", "b")):
            async with w.manager.lock(*names, reentrant=True):
                children = [asyncio.create_task(enter()) for _ in range(3)]
                await asyncio.sleep(3)
            await asyncio.gather(*children)
        (record,) = caplog.records
        assert "it or a task that started it has acquired" in record.getMessage()
        assert record.__dict__["lock"] == "a"
