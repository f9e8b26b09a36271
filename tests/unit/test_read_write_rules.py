"""Promises of R20, R21 and R23 to readers and writers, one by one, for every majority.

What R22 promises is shown in `test_read_write` and `test_read_write_turns`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from aioredlock_ng import LockLostError, QuorumUnavailableError
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cancelled, cycle, in_task, sim
from tests.unit.traces import PREFIX, count, counter
from tests.unit.worlds import LATENCY, PLAIN, ago, each, opened, put, world

KEY = PREFIX + b"a"
HEALED = 1.0
"""Seconds after which a node that was silent takes part again."""
FLOORS = 3.0
"""Seconds after which the counters of others can follow those of a node that was empty (R11)."""
QUARANTINE = 61.0
"""Seconds until one that was empty has its vote, where a quarantine is 60 s: a percent and 10 ms more."""
NOTICED = 5.0
"""Seconds within which a node that froze counts as not reached, and its last use is reported."""
NUMBERS = pytest.mark.parametrize("number", [3, pytest.param(5, marks=pytest.mark.heavy)])


def lock_of(manager, mode):
    """Describe the lock as a reader or a writer."""
    return getattr(manager.rwlock("a"), mode)()


def pairs(number):
    """Return all pairs of two smallest majorities, or all nodes; many of them have one node in common."""
    every = range(number)
    majorities = [*itertools.combinations(every, number // 2 + 1), tuple(every)]
    return list(itertools.product(majorities, repeat=2))


@contextlib.contextmanager
def only(w, nodes):
    """Let a stranger have the name on all other nodes."""
    others = set(range(len(w.nodes))) - set(nodes)
    for node in others:
        w.occupy("a", 1000.0, node)
    yield
    for node in others:
        w.vacate("a", node)


@contextlib.asynccontextmanager
async def granted(w, lock, nodes):
    """Hold the lock on these nodes; its keys end there, so that its release can tell them nothing more."""
    with only(w, nodes):
        lease = await lock.try_acquire()
        yield lease
        w.vacate("a", *nodes)
        await lease.release()


async def gets_in(lock):
    """Say whether a single try gets in, and leave again."""
    with contextlib.suppress(QuorumUnavailableError):
        lease = await lock.try_acquire()
        if lease is not None:
            await lease.release()
            return True
    return False


# -- exclusion (R20) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "silent"),
    [(3, 0), (3, 1), (3, 2), *(pytest.param(5, n, marks=pytest.mark.heavy) for n in (0, 1, 2))],
)
@pytest.mark.parametrize(("first", "second"), [("read", "write"), ("write", "read"), ("write", "write")])
async def test_r20_what_has_a_majority_keeps_the_other_mode_out(first, second, number, silent):
    """Whichever nodes it has, and also where the first few are silent; on fewer it keeps none out."""
    async with world(number) as w, w.process() as other:
        for has in itertools.product([False, True], repeat=number):
            lease = await lock_of(w.manager, first).acquire()
            for node in range(number):
                if not has[node]:
                    w.vacate("a", node)
            each(w.nodes[:silent]).freeze()
            enters = await gets_in(lock_of(other, second))
            assert enters is (has[silent:].count(False) > number // 2), has
            assert not (enters and sum(has) > number // 2)
            each(w.nodes[:silent]).thaw()
            await asyncio.sleep(HEALED if silent else 0)
            await lease.release()


@pytest.mark.parametrize("loses", [MemoryNode.restart, MemoryNode.flush])
@pytest.mark.parametrize(("first", "second"), [("read", "write"), ("write", "read"), ("write", "write")])
async def test_r20_a_node_that_came_back_empty_lets_none_in(first, second, loses):
    """It has forgotten who keeps the other mode out: it has no vote until that is over (R12)."""
    async with world(restart_quarantine=60) as w, w.process(restart_quarantine=60) as other:
        async with granted(w, lock_of(w.manager, first), (0, 1)):
            w.vacate("a", 2)
            loses(w.nodes[0])
            assert not await gets_in(lock_of(other, second))
            await asyncio.sleep(FLOORS)
            assert not await gets_in(lock_of(other, second))
        w.nodes[1].freeze()
        assert not await gets_in(lock_of(other, second)), "the name is free, and one of two has a vote"
        # Until the frozen node, which may know of another server, was last used a quarantine ago (R12c).
        await asyncio.sleep(QUARANTINE + NOTICED)
        assert await gets_in(lock_of(other, second))
        w.nodes[1].thaw()


@pytest.mark.parametrize("lost", ["requests", "replies"])
async def test_r20_an_extension_that_comes_too_late_counts_for_nothing(lost):
    """A node where the entry has ended does not have it back; to a reader that is over it is no news."""
    async with world() as w, w.process() as other, other.rwlock("a").read() as beside:
        wires = [node.wire() for node in w.nodes]
        async with opened(wires, seed=99) as late:
            lease = await late.rwlock("a", ttl=0.3, extension=PLAIN).read().acquire()
            ends = [node._server.scores(KEY)[lease._holding.owner] for node in w.nodes]
            await asyncio.sleep(0.2)
            for wire in wires:
                wire.cut(**{"requests": False, "replies": False, lost: True})
            extends = in_task(lease.extend)
            await lease.lost.wait()
            await asyncio.sleep(0.1 if lost == "requests" else 0.01)
            for wire in wires:
                wire.mend()
            assert isinstance((await extends).error, LockLostError)
            await asyncio.sleep(0.05)
            assert [count(node, "rw-extend") for node in w.nodes] == [1] * 3
            assert [count(node, "rw-repair") for node in w.nodes] == [0] * 3
            assert (lease.held, lease.lost.is_set(), lease.extensions) == (False, True, 0)
            # Where it came in time it stays until its release, and keeps writers out.
            stays = [node._server.scores(KEY).get(lease._holding.owner, 0) for node in w.nodes]
            assert [then > before for then, before in zip(stays, ends, strict=True)] == [
                lost == "replies"
            ] * 3
            await lease.release()
        assert beside.held
        assert [len(node._server.scores(KEY)) for node in w.nodes] == [1] * 3


# -- fences (R21) ------------------------------------------------------------------------------------


@NUMBERS
async def test_r21_fences_grow_whichever_majorities_grant(number):
    """A writer's is even and above all before; a reader's is odd, above each writer's, below no reader's."""
    async with world(number) as w, w.process() as other:
        fences = []
        put(w, "a", *[ago(-5)] * number)  # ahead of all ballots, so that only counters tell
        for one, two in pairs(number):
            async with granted(w, lock_of(w.manager, "write"), one) as writer:
                fences.append(writer.fence)
            w.nodes[two[0]].set(counter("a"), b"%d" % (writer.fence + 10), 600.0)  # a write was not won
            async with granted(w, lock_of(other, "read"), two) as reader:
                async with granted(w, lock_of(w.manager, "read"), two) as beside:
                    assert beside.fence == reader.fence
                fences.append(reader.fence)
            async with granted(w, lock_of(w.manager, "read"), one) as later:
                assert later.fence >= reader.fence
                assert later.fence % 2 == 1
        assert fences == sorted(set(fences))
        assert [fence % 2 for fence in fences] == [0, 1] * len(pairs(number))


async def test_r21_a_node_that_granted_above_a_readers_fence_is_no_witness():
    """Two that cannot be followed stand above what the third can be at: that is no certificate."""
    async with world() as w:
        put(w, "a", ago(5), ago(-10.5), ago(-11.5))
        with pytest.raises(QuorumUnavailableError, match="did not agree on a fence"):
            await w.manager.rwlock("a", blocking=False).read().acquire()
        await asyncio.sleep(2)
        async with w.manager.rwlock("a").read() as lease:
            assert sum(int(node.get(counter("a"))) >= lease.fence for node in w.nodes) >= 2
            assert lease.fence > ago(-8.6)


async def test_r21_a_node_where_the_reader_is_no_more_is_no_witness():
    """Its entry has gone between the grant and the raise: that node may have let a writer in."""
    async with world() as w:
        async with w.manager.rwlock("a").read() as first:
            base = first.fence
        put(w, "a", base + 2_000, base + 4_000, base + 6_000)
        tries = in_task(w.manager.rwlock("a", blocking=False).read().acquire)
        await asyncio.sleep(2.5 * LATENCY)
        w.vacate("a", 0, 1)
        assert isinstance((await tries).error, QuorumUnavailableError)
        assert [count(node, "rw-raise") for node in w.nodes] == [1, 1, 0]


# -- the downgrade, and what is unchanged (R23) ------------------------------------------------------


@NUMBERS
async def test_r23_a_writer_on_any_majority_is_told_of(number):
    """Also where one node alone is of both majorities, and all others have not heard of that writer; without
    one it is unchanged: nodes that the reader did not have are behind it, and tell of no writer either.
    """
    async with world(number) as w, w.process() as other:
        for first, mine in pairs(number):
            async with granted(w, lock_of(w.manager, "read"), first) as read:
                pass
            async with granted(w, w.manager.rwlock("a").write(since=read), mine) as lease:
                assert lease.unchanged is True, (first, mine)
            async with w.manager.rwlock("a").write():
                pass  # all nodes agree again
            async with lock_of(w.manager, "read") as read:
                pass
            await cycle(granted(w, lock_of(other, "write"), first))
            async with granted(w, w.manager.rwlock("a").write(since=read), mine) as lease:
                assert lease.unchanged is False, (first, mine)


@pytest.mark.parametrize(
    ("number", "silent"), [(3, ()), (3, (0,)), (3, (2,)), (3, (0, 1)), (5, (0, 1)), (5, (0, 1, 2))], ids=str
)
async def test_r23_no_writer_comes_between_a_writer_and_the_reader_it_becomes(number, silent):
    """One that asks all the time never gets in; readers do, once a majority knows; the fence stays."""
    entered = []

    async def again_and_again(lock):
        while True:
            entered.extend([sim().time()] * await gets_in(lock))
            await asyncio.sleep(LATENCY / 3)

    async with world(number) as w, w.process() as other, w.process() as third:
        wires = [node.wire() for node in w.nodes]
        async with opened(wires, seed=99) as holder:
            lease = await holder.rwlock("a", ttl=2).write().acquire()
            owner, fence = lease._holding.owner, lease.fence
            writer = asyncio.create_task(again_and_again(other.rwlock("a").write()))
            await asyncio.sleep(10 * LATENCY)
            for node in silent:
                wires[node].cut()
            error = (await in_task(lease.downgrade)).error
            enough = number - len(silent) > number // 2
            assert error is None if enough else isinstance(error, QuorumUnavailableError)
            assert (lease.mode, lease.fence, lease.held) == ("read", fence, True)
            assert await gets_in(third.rwlock("a").read()) is enough
            for node in silent:
                wires[node].mend()
            await asyncio.sleep(HEALED)
            assert await gets_in(third.rwlock("a").read())
            assert not entered
            assert (lease.held, lease.fence) == (True, fence)
            assert [list(node._server.scores(KEY)) for node in w.nodes] == [[owner]] * number
            await lease.release()
            await asyncio.sleep(10 * LATENCY)
            assert entered
            await cancelled(writer)
