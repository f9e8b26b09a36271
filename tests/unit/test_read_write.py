"""The read-write lock: readers together, a writer alone, fences, turns, the downgrade (R19 to R23)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioredlock_ng import LockTakenError, WouldDeadlockError
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import (
    LATENCY,
    PREFIX,
    TTL,
    Sent,
    count,
    counter,
    in_task,
    put,
    sent,
    sim,
    turns,
    virtual,
    within,
    world,
)

KEY = PREFIX + b"a"
QUEUE = PREFIX + b"queue:{" + KEY + b"}"
ROUND_TRIP = 2 * LATENCY


def marks(node: MemoryNode) -> set[bytes]:
    """Return the marks that stand on a node; of a seat no more than that it is one."""
    now = node._server.time_us() // 1000
    return {mark[:1] for mark, ends in node._server.scores(QUEUE).items() if ends >= now}


# -- who may be in (R19, R20) ------------------------------------------------------------------------


@virtual
async def test_readers_are_together_and_a_writer_is_alone():
    """Readers of three processes share the name; while any is in no writer is, and the other way round."""
    async with world() as w, w.process() as second, w.process() as third:
        managers = [w.manager, second, third]
        leases = [await manager.rwlock("a").read().acquire() for manager in managers * 2]
        assert [lease.mode for lease in leases] == ["read"] * 6
        assert all(lease.held for lease in leases)
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


@virtual
async def test_tasks_of_one_process_share_as_processes_do():
    """When the first reader has won, those behind it ask at once; a writer waits for all of them."""
    async with world() as w:
        lock = w.manager.rwlock("a")
        readers = [in_task(lock.read().acquire) for _ in range(20)]
        await turns(1)
        began = sim().time()
        ends = [await task for task in readers]
        assert [end.error for end in ends] == [None] * 20
        assert max(end.at for end in ends) - began <= 3 * ROUND_TRIP


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one name", "two names"])
@virtual
async def test_a_mutex_and_a_read_write_lock_exclude_each_other(names, fencing):
    """Under one key each finds the other in its way, and waits for as long as it stays."""
    async with world(fencing=fencing) as w, w.process(fencing=fencing) as other:
        taken: list[Any] = []
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
                taken.append(caught.value.retry_after)
            lease = await then.acquire()
            await lease.release()
        assert taken == [pytest.approx(TTL, abs=0.1)] * 5
        assert w.keys == [()] * 3


@virtual
async def test_a_mutex_gets_in_when_the_last_reader_has_gone():
    """It is not told, and polls; a reader that ends sooner than another does not hide that one's end."""
    async with world() as w, w.process() as other:
        long = await w.manager.rwlock("a", ttl=20).read().acquire()
        short = await w.manager.rwlock("a", ttl=2).read().acquire()
        waits = in_task(other.lock("a").acquire)
        await long.release()
        await asyncio.sleep(0.6)
        assert not waits.done()
        assert [node.ttl(KEY) <= 2 for node in w.nodes] == [True] * 3
        await short.release()
        await asyncio.sleep(0.6)
        assert (await waits).error is None


@virtual
async def test_a_reader_that_is_gone_leaves_alone():
    """Its entry ends with its ttl, whatever the others do, and the next acquire drops it."""
    async with world() as w, w.process() as other:
        crashed = await w.manager.rwlock("a", ttl=1).read().acquire()
        lease = await other.rwlock("a", ttl=1).read().acquire()
        crashed._holding._session.watchdog.forget(crashed._holding)
        await asyncio.sleep(1.5)
        assert (lease.held, crashed.held) == (True, False)
        third = await other.rwlock("a").read().acquire()
        assert len(w.nodes[0]._server.scores(KEY)) == 2
        await third.release()
        await lease.release()
        async with other.rwlock("a", blocking=False).write():
            pass
        await crashed.release()


@virtual
async def test_a_holder_that_asks_again_is_told_so():
    """Also a reader for a read lock, which it might get: behind a waiting writer it would wait for itself."""
    async with world() as w:
        lock = w.manager.rwlock("a")
        for mode in ("read", "write"):
            async with getattr(lock, mode)():
                for again in (lock.read(), lock.write(), w.manager.lock("a")):
                    with pytest.raises(WouldDeadlockError):
                        await again.acquire()
                single = await lock.read().try_acquire()
                assert (single is None) is (mode == "write")
                if single is not None:
                    await single.release()


# -- fences (R21) ------------------------------------------------------------------------------------


@virtual
async def test_readers_share_an_odd_fence_and_writers_have_even_ones():
    """Each in one round trip: readers between two writers have one fence, greater than the one before it."""
    async with world(5) as w, w.process() as other:
        seen = []
        for number in range(12):
            managers = (w.manager, other)
            if number % 3 == 2:
                began = sim().time()
                async with managers[number % 2].rwlock("a").write() as lease:
                    assert sim().time() - began == pytest.approx(ROUND_TRIP)
                    seen.append(lease.fence)
                    assert lease.fence % 2 == 0
                async with w.manager.lock("a") as lease:
                    seen.append(lease.fence)
                continue
            began = sim().time()
            async with managers[0].rwlock("a").read() as one, managers[1].rwlock("a").read() as two:
                assert sim().time() - began == pytest.approx(2 * ROUND_TRIP)
                assert one.fence == two.fence
                assert one.fence % 2 == 1
                seen.append(one.fence)
        assert seen == sorted(seen)
        assert len(set(seen)) == 12
        assert all(count(node, "rw-raise") == 0 for node in w.nodes)


@virtual
async def test_a_reader_raises_nodes_that_are_behind():
    """A certificate needs Q nodes that granted at its fence or below; what was above does not count."""
    async with world() as w:
        async with w.manager.rwlock("a").read() as first:
            base = first.fence
        put(w, "a", base + 1_000, base + 3_000, base + 5_000)
        async with w.manager.rwlock("a").read() as lease:
            assert lease.fence == base + 5_000
            assert sum(count(node, "rw-raise") for node in w.nodes) == 2
            stands = sorted(int(node.get(counter("a")) or 0) for node in w.nodes)
            assert stands[1] >= lease.fence


@virtual
async def test_a_silent_node_is_not_raised_for_a_reader():
    """Where it granted is not known: it might have been above the fence already."""
    async with world() as w:
        put(w, "a", None, None, None)
        async with w.manager.rwlock("a").read() as first:
            base = first.fence
        put(w, "a", base + 1_000, base + 3_000, base + 9_000)
        w.nodes[2].latency = 0.08
        async with w.manager.rwlock("a").read() as lease:
            assert lease.fence == base + 3_000
        await asyncio.sleep(1)
        assert count(w.nodes[2], "read") == 2
        assert count(w.nodes[2], "rw-raise") == 0


@pytest.mark.parametrize("several_names", [False, True])
@virtual
async def test_a_later_reader_may_have_a_greater_fence(several_names: bool):
    """Where a writer that has not won is known to one node, and where the readers' names are not the same."""
    async with world() as w:
        async with w.manager.rwlock("a").write() as writer:
            pass
        put(w, "a", None, None, writer.fence + 2)
        first = await w.manager.rwlock("a").read().acquire()
        if not several_names:
            w.nodes[0].freeze()
        names = ("a", "b") if several_names else ("a",)
        async with w.process() as other, other.rwlock(*names).read() as second:
            assert second.fence > first.fence > writer.fence
            assert first.held
        w.nodes[0].thaw()
        await first.release()
        async with w.manager.rwlock("a").write() as later:
            assert later.fence > second.fence


# -- turns (R22) -------------------------------------------------------------------------------------


@virtual
async def test_a_waiting_writer_keeps_new_readers_out():
    """It waits for the readers that are in, and for no others; then it is told at once that they are gone."""
    async with world() as w, w.process() as other, w.process() as third:
        reader = await w.manager.rwlock("a").read().acquire()
        writer = asyncio.create_task(other.rwlock("a").write().acquire())
        await asyncio.sleep(0.1)
        assert [marks(node) for node in w.nodes] == [{b"w"}] * 3
        assert await third.rwlock("a").read().try_acquire() is None
        late = asyncio.create_task(third.rwlock("a").read().acquire())
        await asyncio.sleep(3)
        assert not writer.done()
        assert not late.done()
        await reader.release()
        await asyncio.sleep(0.02)
        lease = await asyncio.shield(writer)
        assert marks(w.nodes[0]) == {b"r"}
        await asyncio.sleep(0.1)
        assert not late.done()
        await lease.release()
        await (await late).release()


@virtual
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
        assert b"t" in marks(w.nodes[0])
        await lease.release()
        await (await writer).release()


@virtual
async def test_a_single_try_leaves_no_mark():
    """It does not wait, so that no reader waits for it; a call that gives up takes its mark away."""
    async with world() as w, w.process() as other, w.manager.rwlock("a").read():
        assert await other.rwlock("a").write().try_acquire() is None
        assert marks(w.nodes[0]) == set()
        waits = asyncio.create_task(other.rwlock("a").write().acquire())
        await asyncio.sleep(0.1)
        assert marks(w.nodes[0]) == {b"w"}
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        await asyncio.sleep(ROUND_TRIP)
        assert [marks(node) for node in w.nodes] == [set()] * 3
        with pytest.raises(LockTakenError):
            await other.rwlock("a", blocking_timeout=0.3).write().acquire()
        await asyncio.sleep(ROUND_TRIP)
        assert marks(w.nodes[0]) == set()


# -- downgrade, unchanged (R23) ----------------------------------------------------------------------


@virtual
async def test_a_downgrade_lets_readers_in_and_no_writer():
    """One owner, one fence; readers of this process and others come in at once, writers wait for its end."""
    async with world() as w, w.process() as other:
        lease = await w.manager.rwlock("a").write().acquire()
        fence = lease.fence
        here = asyncio.create_task(w.manager.rwlock("a").read().acquire())
        there = asyncio.create_task(other.rwlock("a").read().acquire())
        await asyncio.sleep(0.1)
        assert not here.done()
        assert not there.done()
        await lease.downgrade()
        assert (lease.mode, lease.fence, lease.held) == ("read", fence, True)
        async with within(TTL):
            readers = [await here, await there]
        assert [reader.fence > fence for reader in readers] == [True, True]
        for reader in readers:
            await reader.release()
        assert await other.rwlock("a").write().try_acquire() is None
        await asyncio.sleep(2 * TTL)  # extended as a reader
        assert lease.held
        await lease.downgrade()
        await lease.release()
        async with other.rwlock("a", blocking=False).write():
            pass


@virtual
async def test_only_a_write_lease_is_downgraded():
    """A mutex has no readers."""
    async with world() as w, w.manager.lock("a") as lease:
        assert (lease.mode, lease.unchanged) == (None, None)
        with pytest.raises(TypeError, match="only a write lease"):
            await lease.downgrade()


@virtual
async def test_unchanged_is_true_only_if_no_writer_came_between():
    """Readers between do not matter; a writer does, and so does a mutex."""
    async with world(5) as w, w.process() as other:
        lock = w.manager.rwlock("a")
        async with lock.read() as read:
            pass
        async with other.rwlock("a").read():
            pass
        async with lock.write(since=read) as lease:
            assert lease.unchanged is True
        async with lock.write(since=read) as lease:
            assert lease.unchanged is False
        async with lock.read() as read:
            pass
        async with other.lock("a"):
            pass
        async with lock.write(since=read) as lease:
            assert lease.unchanged is False
        async with lock.write() as lease:
            assert lease.unchanged is None


@virtual
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


@virtual
async def test_since_is_a_read_lease_of_the_same_names():
    """What cannot be compared is refused at the call."""
    async with world() as w, w.process(fencing=False) as plain:
        async with w.manager.rwlock("b").read() as other, w.manager.rwlock("a").write() as writer:
            for wrong in (other, writer):
                with pytest.raises(ValueError, match="since must be a read lease of 'a'"):
                    w.manager.rwlock("a").write(since=wrong)
        with pytest.raises(TypeError, match="since must be a read lease"):
            w.manager.rwlock("a").write(since=17)
        async with plain.rwlock("c").read() as unfenced:
            for manager in (plain, w.manager):
                with pytest.raises(ValueError, match="fencing=False"):
                    manager.rwlock("c").write(since=unfenced)
        async with w.manager.rwlock("a").read() as fenced:
            with pytest.raises(ValueError, match="fencing=False"):  # its counters are not looked at there
                plain.rwlock("a").write(since=fenced)


@virtual
async def test_a_writer_without_a_fence_is_not_seen():
    """Counters tell of writers, and it leaves none: what the docs say, so that managers are made alike."""
    async with world() as w, w.process(fencing=False) as plain:
        async with w.manager.rwlock("a").read() as read:
            pass
        async with plain.rwlock("a").write():
            pass
        async with w.manager.rwlock("a").write(since=read) as lease:
            assert lease.unchanged is True


# -- what it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read", "write"])
@virtual
async def test_a_lease_costs_one_round_trip_and_two_commands_a_node(mode):
    """As a mutex does: an acquire, and a release that is queued before anything is awaited."""
    async with world(5) as w:
        lock = getattr(w.manager.rwlock("a"), mode)()
        async with lock:
            pass
        began = sim().time()
        before = [len(sent(node)) for node in w.nodes]
        async with lock:
            assert sim().time() - began == pytest.approx(ROUND_TRIP)
        await asyncio.sleep(0.1)

        def kinds(commands: list[Sent]) -> list[str]:
            return [each.kind for each in commands if each.key == KEY]

        assert [kinds(sent(node)[n:]) for node, n in zip(w.nodes, before, strict=True)] == [
            [mode, "rw-release"]
        ] * 5
