"""Read-write locks seen from outside: each reader by itself, however many nodes have it (R19, R20)."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockInspection, LockTakenError
from aioredlock_ng._admin import inspection
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import PREFIX, STRANGER, TTL, World, turns, virtual, world

KEY = PREFIX + b"a"


def owner(number: int, label: str = "") -> bytes:
    """Return an owner value; the label is the number, unless given."""
    return b"%040x:1763629200123:%b" % (number, (label or str(number)).encode())


def put(node: MemoryNode, *readers: tuple[bytes, float], key: bytes = KEY) -> None:
    """Have readers on a node, each for so many seconds."""
    server = node._server
    node.delete(key)
    for value, ttl in readers:
        server.zadd(key, value, round(server.time_us() / 1000 + ttl * 1000))
    if readers:
        server.pexpire(key, max(ttl for _, ttl in readers) * 1000)


async def look(w: World) -> LockInspection:
    """Look at the lock."""
    (lock,) = (await w.manager.survey("a")).locks
    return lock


@virtual
async def test_each_reader_is_seen_with_its_own_time() -> None:
    """What it is called, since when, for how long yet, on how many nodes, and whether it is ours."""
    async with world(3, holder="us") as w, w.process(holder="them", ttl=20) as other:
        theirs = await other.rwlock("a").read().acquire()
        await asyncio.sleep(1)
        async with w.manager.rwlock("a").read():
            lock = await look(w)
            assert (lock.state, lock.shared, lock.held_by, lock.more_readers) == ("held", True, 3, False)
            assert [reader.holder for reader in lock.readers] == ["them", "us"]
            assert [reader.ours for reader in lock.readers] == [False, True]
            assert [reader.held_by for reader in lock.readers] == [3, 3]
            first, second = lock.readers
            assert second.since == pytest.approx((first.since or 0) + 1, abs=0.01)
            assert (first.ttl, second.ttl) == (pytest.approx(19, abs=0.1), pytest.approx(TTL, abs=0.1))
            assert lock.ttl == first.ttl
            for node in await w.manager.inspect("a"):
                assert (node.held, node.ours, node.holder) == (True, True, "them")
                assert node.ttl == node.readers[0].ttl
                assert [(reader.holder, reader.ours) for reader in node.readers] == [
                    ("them", False),
                    ("us", True),
                ]
        await theirs.release()


@virtual
async def test_a_holder_alone_says_what_it_is() -> None:
    """A mutex, a writer and a leader look alike but for what they wrote of themselves; none has readers."""
    async with world(3, holder="us") as w, w.process() as other:
        one = w.manager
        for kind, lock in {
            "mutex": one.lock("a"),
            "write": one.rwlock("a").write(),
            "leader": one.election("a").campaign(),
        }.items():
            async with lock:
                seen = await look(w)
                assert (seen.state, seen.kind, seen.shared, seen.readers) == ("held", kind, False, ())
                assert [(node.kind, node.holder, node.readers) for node in seen.nodes] == [
                    (kind, "us", ())
                ] * 3
                with pytest.raises(LockTakenError) as caught:
                    await other.lock("a", blocking=False).acquire()
                assert caught.value.holder == "us"
        free = await look(w)
        assert (free.state, free.kind, free.shared, free.holder, free.readers) == (
            "free",
            None,
            False,
            None,
            (),
        )
        w.occupy("a", 5.0)
        assert (await look(w)).kind is None
        async with one.rwlock("b").read():
            (read,) = (await one.survey("b")).locks
            assert (read.kind, {node.kind for node in read.nodes}) == ("read", {"read"})


@virtual
async def test_a_lock_is_held_if_a_majority_has_one_of_its_readers() -> None:
    """Majorities of readers are counted for each alone: nodes that have some reader each agree on none."""
    async with world(3) as w:
        for number, node in enumerate(w.nodes):
            put(node, (owner(number), 5.0))
        lock = await look(w)
        assert (lock.state, lock.held_by, lock.shared) == ("partial", 1, True)
        assert [(reader.held_by, reader.ttl) for reader in lock.readers] == [
            (1, pytest.approx(5, abs=0.1))
        ] * 3
        put(w.nodes[2], (owner(2), 9.0), (owner(0), 5.0))
        lock = await look(w)
        assert (lock.state, lock.held_by, lock.holder) == ("held", 2, "0")
        assert [(reader.holder, reader.held_by) for reader in lock.readers] == [("0", 2), ("2", 1), ("1", 1)]
        # Until no majority has it: what a minority has for longer keeps no writer out.
        assert lock.ttl == pytest.approx(5, abs=0.1)


@virtual
async def test_the_lock_stays_as_long_as_its_last_reader() -> None:
    """Of the readers that a majority has; each until its own majority ends."""
    async with world(3) as w:
        for node, first, second in zip(w.nodes, (1.0, 2.0, 3.0), (6.0, 5.0, 4.0), strict=True):
            put(node, (owner(1), first), (owner(2), second))
        lock = await look(w)
        assert {reader.holder: reader.ttl for reader in lock.readers} == {
            "1": pytest.approx(2, abs=0.1),
            "2": pytest.approx(5, abs=0.1),
        }
        assert lock.ttl == pytest.approx(5, abs=0.1)


@virtual
async def test_readers_that_have_ended_are_not_shown() -> None:
    """Their entries may still be there, until the next acquire drops them."""
    async with world(3) as w:
        for node in w.nodes:
            put(node, (owner(1), 1.0), (owner(2), 5.0))
        await asyncio.sleep(2)
        lock = await look(w)
        assert [reader.holder for reader in lock.readers] == ["2"]


@virtual
async def test_of_many_readers_the_first_hundred_are_shown_and_that_there_are_more() -> None:
    """Those that stay longest; exactly a hundred are all."""
    async with world(3) as w:
        for number in (inspection.MAX_READERS, inspection.MAX_READERS + 1, 500):
            for node in w.nodes:
                put(node, *((owner(i), 5.0 + i) for i in range(number)))
            lock = await look(w)
            cut = number > inspection.MAX_READERS
            assert (lock.state, lock.held_by, lock.more_readers) == ("held", 3, cut)
            assert [node.more_readers for node in lock.nodes] == [cut] * 3
            shown = [str(i) for i in range(number)][: -inspection.MAX_READERS - 1 : -1]
            assert [reader.holder for reader in lock.readers] == shown
            assert [reader.holder for reader in lock.nodes[0].readers] == shown


@virtual
async def test_what_is_cut_leaves_it_open_whether_a_majority_agrees() -> None:
    """Nodes that name different readers out of many may still have one in common."""
    async with world(3) as w:
        for number, node in enumerate(w.nodes):
            put(node, *((owner(1000 * number + i), 5.0) for i in range(200)))
        assert (await look(w)).state == "unknown"
        put(w.nodes[1])
        put(w.nodes[2])
        lock = await look(w)
        assert (lock.state, lock.held_by) == ("partial", 1)


@virtual
async def test_a_node_that_missed_the_downgrade_counts_for_the_reader() -> None:
    """It has the same owner as a writer yet: one holder, whatever it is called where (R23)."""
    async with world(3) as w:
        lock = w.manager.rwlock("a").write()
        async with lock as lease:
            w.nodes[2].freeze()
            await lease.downgrade()
            before = w.nodes[2].get(KEY)
            w.nodes[2].thaw()
            await turns(1)
            w.nodes[2].set(KEY, before, 5.0)
            seen = await look(w)
            (reader,) = seen.readers
            assert (seen.state, seen.shared, seen.held_by, reader.held_by) == ("held", True, 3, 3)
            assert [node.kind for node in seen.nodes] == ["read", "read", "write"]
            assert seen.kind == "read"


@virtual
async def test_a_writer_beside_a_reader_that_is_left_over_is_the_holder() -> None:
    """What a minority still has is named, and makes no shared lock of it."""
    async with world(3) as w:
        w.occupy("a", 9.0, 0, 1, value=owner(1, "writer"))
        put(w.nodes[2], (owner(2, "left"), 99.0))
        lock = await look(w)
        assert (lock.state, lock.shared, lock.holder, lock.ttl) == (
            "held", False, "writer", pytest.approx(9, abs=0.1)
        )  # fmt: skip
        assert [(reader.holder, reader.held_by) for reader in lock.readers] == [("left", 1)]


@virtual
async def test_readers_of_another_program_have_no_name() -> None:
    """They are in the way all the same."""
    async with world(3) as w:
        for node in w.nodes:
            put(node, (STRANGER, 5.0))
        lock = await look(w)
        (reader,) = lock.readers
        assert (lock.state, lock.shared, lock.holder, reader.holder, reader.since) == (
            "held", True, None, None, None
        )  # fmt: skip


@virtual
async def test_forced_readers_are_told_of_and_gone() -> None:
    """What each node had comes back, and a writer may have it; no owner value is shown."""
    async with world(3, holder="us") as w, w.process() as other:
        lease = await w.manager.rwlock("a").read().acquire()
        value = next(iter(w.nodes[0]._server.scores(KEY)))
        found = await other.force_release("a")
        assert [[reader.holder for reader in node.readers] for node in found] == [["us"]] * 3
        assert value[:40].decode() not in repr(found)
        async with other.rwlock("a", blocking=False).write():
            pass
        await asyncio.sleep(TTL)
        assert not lease.held
        await lease.release()


@virtual
async def test_init_finds_readers_alive() -> None:
    """As it does any lock."""
    async with world(3) as w, w.process() as other, other.rwlock("a").read():
        with pytest.raises(LockTakenError, match="'a' is alive"):
            await w.manager.init()
