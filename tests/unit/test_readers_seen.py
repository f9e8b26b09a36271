"""Read-write locks seen from outside: each reader by itself, however many nodes have it (R19, R20)."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockTakenError
from tests.unit.traces import PREFIX
from tests.unit.worlds import TTL, world

KEY = PREFIX + b"a"


def owner(number):
    """Return an owner value, whose label is the number."""
    return b"%040x:1763629200123:%d" % (number, number)


def put(node, *readers):
    """Have readers on a node, each for a time in seconds."""
    server = node._server
    node.delete(KEY)
    for value, ttl in readers:
        server.zadd(KEY, value, round(server.time_us() / 1000 + ttl * 1000))
    if readers:
        server.pexpire(KEY, max(ttl for _, ttl in readers) * 1000)


async def look(w):
    """Look at the lock."""
    (lock,) = (await w.manager.survey("a")).locks
    return lock


async def test_each_reader_is_seen_with_its_own_time():
    """Its label, its begin, the time left, its nodes, and whether it is ours; `init` finds
    it alive, and a forced release tells of it.
    """
    async with world(3, holder="us") as w, w.process(holder="them", ttl=20) as other:
        theirs = await other.rwlock("a").read().acquire()
        await asyncio.sleep(1)
        ours = await w.manager.rwlock("a").read().acquire()
        lock = await look(w)
        assert (lock.state, lock.shared, lock.held_by, lock.more_readers) == ("held", True, 3, False)
        first, second = lock.readers
        assert (first.holder, first.ours, first.held_by) == ("them", False, 3)
        assert (second.holder, second.ours, second.held_by) == ("us", True, 3)
        assert second.since == pytest.approx(first.since + 1, abs=0.01)
        assert (first.ttl, second.ttl) == (pytest.approx(19, abs=0.1), pytest.approx(TTL, abs=0.1))
        assert lock.ttl == first.ttl
        for node in await w.manager.inspect("a"):
            assert (node.held, node.ours, node.holder) == (True, True, "them")
            assert node.ttl == node.readers[0].ttl
            assert [(one.holder, one.ours) for one in node.readers] == [("them", False), ("us", True)]
        with pytest.raises(LockTakenError, match="'a' is alive"):
            await w.manager.init()
        value = next(iter(w.nodes[0]._server.scores(KEY)))
        found = await other.force_release("a")
        assert [[reader.holder for reader in node.readers] for node in found] == [["them", "us"]] * 3
        assert value[:40].decode() not in repr(found)
        async with w.process() as third, third.rwlock("a", blocking=False).write():
            await asyncio.sleep(2 * TTL)
        for lease in (ours, theirs):
            assert not lease.held
            await lease.release()


async def test_a_lock_is_held_if_a_majority_has_one_of_its_readers():
    """Majorities of readers are counted for each alone: nodes that have some reader each agree on none.  Each
    is there until its own majority ends, and the lock as long as its last; what has ended is not shown.
    """
    async with world(3) as w:
        for number, node in enumerate(w.nodes):
            put(node, (owner(number), 5.0), (owner(9), 1.0))
        await asyncio.sleep(2)
        lock = await look(w)
        assert (lock.state, lock.held_by, lock.shared) == ("partial", 1, True)
        assert [(one.held_by, one.ttl) for one in lock.readers] == [(1, pytest.approx(3, abs=0.1))] * 3
        put(w.nodes[2], (owner(2), 9.0), (owner(0), 3.0))
        lock = await look(w)
        assert (lock.state, lock.held_by, lock.holder) == ("held", 2, "0")
        assert [(reader.holder, reader.held_by) for reader in lock.readers] == [("0", 2), ("2", 1), ("1", 1)]
        # Until no majority has it: what a minority has for longer keeps no writer out.
        assert lock.ttl == pytest.approx(3, abs=0.1)
        for node, first, second in zip(w.nodes, (1.0, 2.0, 3.0), (6.0, 5.0, 4.0), strict=True):
            put(node, (owner(1), first), (owner(2), second))
        lock = await look(w)
        left = {reader.holder: reader.ttl for reader in lock.readers}
        assert left == {"1": pytest.approx(2, abs=0.1), "2": pytest.approx(5, abs=0.1)}
        assert lock.ttl == pytest.approx(5, abs=0.1)
