"""The read-write lock: readers together, a writer alone, fences, turns, the downgrade (R19 to R23)."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockTakenError, WouldDeadlockError
from tests.unit.tasks import cycle, sim, within
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import ROUND_TRIP, TTL, put, world

KEY = PREFIX + b"a"
QUEUE = PREFIX + b"queue:{" + KEY + b"}"


def marks(w):
    """Return the marks that stand on the nodes; of a seat no more than that it is one."""
    now = w.nodes[0]._server.time_us() // 1000
    found = [node._server.scores(QUEUE).items() for node in w.nodes]
    return [{mark[:1] for mark, ends in each if ends >= now} for each in found]


# -- who may be in (R19, R20) ------------------------------------------------------------------------


async def test_readers_are_together_and_a_writer_is_alone():
    """Readers of three processes share the name; while any is in no writer is, and the other way round."""
    async with world() as w, w.process() as second, w.process() as third:
        managers = [w.manager, second, third]
        leases = [await manager.rwlock("a").read().acquire() for manager in managers * 2]
        assert [(lease.mode, lease.held) for lease in leases] == [("read", True)] * 6
        assert len(w.nodes[0]._server.scores(KEY)) == 6
        for manager in managers:
            with pytest.raises(LockTakenError):
                await manager.rwlock("a", blocking=False).write().acquire()
        for lease in leases:
            await lease.release()
        async with third.rwlock("a").write() as writer:
            assert writer.mode == "write"
            for manager in (w.manager, second):
                assert await manager.rwlock("a").read().try_acquire() is None
                assert await manager.rwlock("a").write().try_acquire() is None
        assert w.keys == [()] * 3


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one name", "two names"])
async def test_a_mutex_and_a_read_write_lock_exclude_each_other(names, fencing):
    """Under one key each finds the other in its way, and waits for as long as it stays."""
    async with world(fencing=fencing) as w, w.process(fencing=fencing) as other:
        for first, then in (
            (w.manager.lock(*names), other.rwlock("a", blocking=False).read()),
            (w.manager.lock(*names), other.rwlock("a", blocking=False).write()),
            (w.manager.rwlock(*names).read(), other.lock("a", blocking=False)),
            (w.manager.rwlock(*names).read(), other.lock("a", "c", blocking=False)),
            (w.manager.rwlock(*names).write(), other.lock("a", blocking=False)),
        ):
            async with first:
                with pytest.raises(LockTakenError) as caught:
                    await then.acquire()
                assert caught.value.retry_after == pytest.approx(TTL, abs=0.1)
            await cycle(then)
        assert w.keys == [()] * 3


async def test_a_holder_that_asks_again_is_told_so():
    """Also a reader for a read lock, which it might get: behind a waiting writer it would wait for itself."""
    async with world() as w:
        lock = w.manager.rwlock("a")
        for mode in ("read", "write"):
            async with getattr(lock, mode)():
                several = w.manager.rwlock("0", "a").read()  # of which the first is free
                for again in (lock.read(), lock.write(), several, w.manager.lock("a")):
                    with pytest.raises(WouldDeadlockError):
                        await again.acquire()
                single = await lock.read().try_acquire()
                assert (single is None) is (mode == "write")
                if single is not None:
                    await single.release()


# -- fences (R21) ------------------------------------------------------------------------------------


async def test_readers_share_an_odd_fence_and_writers_have_even_ones():
    """Each in one round trip: readers between two writers have one fence, greater than the one before it."""
    async with world(5) as w, w.process() as other:
        seen = []
        for _ in range(4):
            began = sim().time()
            async with w.manager.rwlock("a").read() as one, other.rwlock("a").read() as two:
                assert sim().time() - began == pytest.approx(2 * ROUND_TRIP)
                assert one.fence == two.fence
            began = sim().time()
            async with other.rwlock("a").write() as writer:
                assert sim().time() - began == pytest.approx(ROUND_TRIP)
            async with w.manager.lock("a") as mutex:
                seen += [one.fence, writer.fence, mutex.fence]
        assert seen == sorted(set(seen))
        assert [fence % 2 for fence in seen] == [1, 0, 0] * 4
        assert all(count(node, "rw-raise") == 0 for node in w.nodes)


async def test_a_silent_node_is_not_raised_for_a_reader():
    """Where it granted is not known: it might have been above the fence already."""
    async with world() as w:
        async with w.manager.rwlock("a").read() as first:
            base = first.fence
        put(w, "a", base + 1_000, base + 3_000, base + 9_000)
        w.nodes[2].latency = 0.08
        async with w.manager.rwlock("a").read() as lease:
            assert lease.fence == base + 3_000
        await asyncio.sleep(1)
        assert (count(w.nodes[2], "read"), count(w.nodes[2], "rw-raise")) == (2, 0)


# -- turns (R22) -------------------------------------------------------------------------------------


async def test_a_waiting_writer_keeps_new_readers_out():
    """It waits for the readers that are in, and for no others; then it is notified at once."""
    async with world() as w, w.process() as other, w.process() as third:
        reader = await w.manager.rwlock("a").read().acquire()
        writer = asyncio.create_task(other.rwlock("a").write().acquire())
        await asyncio.sleep(0.1)
        assert marks(w) == [{b"w"}] * 3
        assert await third.rwlock("a").read().try_acquire() is None
        late = asyncio.create_task(third.rwlock("a").read().acquire())
        await asyncio.sleep(3)
        assert (writer.done(), late.done()) == (False, False)
        await reader.release()
        await asyncio.sleep(0.02)
        lease = await asyncio.shield(writer)
        assert marks(w)[0] == {b"r"}
        await asyncio.sleep(0.1)
        assert not late.done()
        await lease.release()
        await (await late).release()


async def test_a_writer_that_leaves_lets_waiting_readers_in_first():
    """Readers of other processes come before the next writer, though it was there before them."""
    async with world() as w, w.process() as second, w.process() as third:
        first = await w.manager.rwlock("a").write().acquire()
        writer = asyncio.create_task(second.rwlock("a").write().acquire())
        await asyncio.sleep(0.1)
        reader = asyncio.create_task(third.rwlock("a").read().acquire())
        await asyncio.sleep(0.1)
        await first.release()
        lease = await asyncio.shield(reader)
        assert not writer.done()
        assert b"t" in marks(w)[0]
        await lease.release()
        await (await writer).release()


async def test_a_single_try_leaves_no_mark():
    """It does not wait, so that no reader waits for it; a call that gives up takes its mark away."""
    async with world() as w, w.process() as other, w.manager.rwlock("a").read():
        assert await other.rwlock("a").write().try_acquire() is None
        assert marks(w) == [set()] * 3
        waits = asyncio.create_task(other.rwlock("a").write().acquire())
        await asyncio.sleep(0.1)
        assert marks(w) == [{b"w"}] * 3
        waits.cancel()
        await asyncio.sleep(ROUND_TRIP)
        assert marks(w) == [set()] * 3
        with pytest.raises(LockTakenError):
            await other.rwlock("a", blocking_timeout=0.3).write().acquire()
        await asyncio.sleep(ROUND_TRIP)
        assert marks(w) == [set()] * 3


# -- downgrade, unchanged (R23) ----------------------------------------------------------------------


async def test_a_downgrade_lets_readers_in_and_no_writer():
    """One owner, one fence; readers of this process and others come in at once, writers wait for its end."""
    async with world() as w, w.process() as other:
        lease = await w.manager.rwlock("a").write().acquire()
        fence = lease.fence
        waits = [asyncio.create_task(m.rwlock("a").read().acquire()) for m in (w.manager, other)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waits)
        await lease.downgrade()
        assert (lease.mode, lease.fence, lease.held) == ("read", fence, True)
        async with within(TTL):
            for task in waits:
                reader = await task
                assert reader.fence > fence
                await reader.release()
        assert await other.rwlock("a").write().try_acquire() is None
        await asyncio.sleep(2 * TTL)  # extended as a reader
        assert lease.held
        await lease.downgrade()
        await lease.release()
        await cycle(other.rwlock("a", blocking=False).write())
        async with w.manager.lock("a") as mutex:
            assert (mutex.mode, mutex.unchanged) == (None, None)
            with pytest.raises(TypeError, match="only a write lease"):
                await mutex.downgrade()


async def test_unchanged_is_true_only_if_no_writer_came_between():
    """Readers between do not matter; a writer does, and so does a mutex.  A writer without a fence is not
    seen, as counters tell of writers: what the docs say, so that all managers get the same options.
    """
    async with world(5) as w, w.process() as other, w.process(fencing=False) as plain:
        lock = w.manager.rwlock("a")
        for between, unchanged in (
            (other.rwlock("a").read(), True),
            (other.rwlock("a").write(), False),
            (other.lock("a"), False),
            (plain.rwlock("a").write(), True),
        ):
            async with lock.read() as read:
                pass
            await cycle(between)
            async with lock.write(since=read) as lease:
                assert lease.unchanged is unchanged
            async with lock.write(since=read) as lease:
                assert lease.unchanged is False, "there was one now"
        async with lock.write() as lease:
            assert lease.unchanged is None


async def test_one_node_does_not_tell_that_nothing_has_changed():
    """A writer's certificate may have left out one node, which alone knows of no change."""
    async with world(3) as w:
        async with w.manager.rwlock("a").read() as read:
            pass
        put(w, "a", None, read.fence + 1025, read.fence + 1025)
        async with w.manager.rwlock("a").write(since=read) as lease:
            assert lease.unchanged is False
        put(w, "a", read.fence, read.fence, None)
        async with w.manager.rwlock("a").write(since=read) as lease:
            assert lease.unchanged is True


async def test_since_is_a_read_lease_of_the_same_names():
    """A lease that cannot be compared is refused at the call."""
    async with world() as w, w.process(fencing=False) as plain:
        async with w.manager.rwlock("b").read() as other, w.manager.rwlock("a").write() as writer:
            for wrong in (other, writer):
                with pytest.raises(ValueError, match="since must be a read lease of 'a'"):
                    w.manager.rwlock("a").write(since=wrong)
        with pytest.raises(TypeError, match="since must be a read lease"):
            w.manager.rwlock("a").write(since=17)
        async with plain.rwlock("c").read() as unfenced, w.manager.rwlock("a").read() as fenced:
            for manager, name, since in (
                (plain, "c", unfenced),
                (w.manager, "c", unfenced),
                (plain, "a", fenced),  # its counters are not looked at there
            ):
                with pytest.raises(ValueError, match="fencing=False"):
                    manager.rwlock(name).write(since=since)
