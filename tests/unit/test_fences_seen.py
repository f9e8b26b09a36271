"""Fences seen from outside: what nodes have of them, and what that says of the holder's (R10, R43)."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from aioredlock_ng import Lease, LockInspection, LockManager, LockNotAcquiredError
from aioredlock_ng.testing import MemoryNode
from tests.unit.traces import PREFIX, counter
from tests.unit.worlds import ANOTHER, STRANGER, World, world

NAME = "a"


async def look(manager: LockManager) -> LockInspection:
    """Look at the lock."""
    (lock,) = (await manager.survey(NAME)).locks
    return lock


def stand(node: MemoryNode, fence: int | None) -> None:
    """Have a node's counter stand at a fence, or have none."""
    if fence is None:
        node.delete(counter(NAME))
    else:
        node.set(counter(NAME), b"%d" % fence, 600.0)


# -- the holder's ------------------------------------------------------------------------------------


async def test_the_fence_of_a_holder_alone_is_seen() -> None:
    """Whatever it holds the name as, in the survey and on each node; once it is free, no more."""
    async with world(3) as w, w.process() as other:
        kinds = {
            "mutex": w.manager.lock(NAME),
            "fair": w.manager.lock(NAME, fair=True),
            "write": w.manager.rwlock(NAME).write(),
            "read": w.manager.rwlock(NAME).read(),
        }
        for kind, lock in kinds.items():
            async with lock as lease:
                await asyncio.sleep(0.01)
                seen = await look(other)
                assert (seen.kind, seen.highest_fence) == (kind, lease.fence)
                assert [node.fence_counter for node in seen.nodes] == [lease.fence] * 3
                assert [node.fence_counter for node in await other.inspect(NAME)] == [lease.fence] * 3
        async with w.manager.election(NAME).campaign() as leadership:
            seen = await look(other)
            assert (seen.kind, seen.highest_fence) == ("leader", leadership.term)
        await asyncio.sleep(0.01)
        seen = await look(other)
        assert (seen.state, seen.highest_fence, seen.nodes[0].fence_counter) == ("free", None, None)


async def test_the_fence_of_several_holders_or_names() -> None:
    """Names that are held together have one; readers share it, or have less; permits have none here."""
    async with world(3) as w, w.process() as other:
        async with w.manager.lock(NAME, "b") as lease:
            survey = await w.manager.survey(NAME, "b")
            assert [lock.highest_fence for lock in survey.locks] == [lease.fence] * 2
        async with w.manager.rwlock(NAME).read() as first, other.rwlock(NAME).read() as second:
            seen = await look(other)
            assert seen.shared
            assert seen.highest_fence == max(first.fence or 0, second.fence or 0)
        for node in w.nodes:
            node.set(counter("c"), b"%d" % (1_700_000_000_000 << 10), 600.0)  # of another kind's holder
        async with w.manager.semaphore("c", permits=3):
            (seen,) = (await w.manager.survey("c")).locks
            assert (seen.kind, seen.highest_fence, seen.nodes[0].fence_counter) == ("semaphore", None, None)


# -- what it cannot tell -----------------------------------------------------------------------------


async def test_a_process_that_hands_a_lock_on_has_one_of_the_last_64() -> None:
    """The nodes know the last of a block: each of its leases has that one or one below it."""
    async with world(3) as w, w.process() as other:
        lock = w.manager.lock(NAME)
        first = await lock.acquire()
        waiting = [asyncio.create_task(lock.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        seen = await look(other)
        assert seen.highest_fence == first.fence
        await first.release()
        for task in waiting:
            lease = await task
            seen = await look(other)
            assert seen.highest_fence is not None
            assert lease.fence is not None
            assert 0 <= seen.highest_fence - lease.fence < 64
            assert (await other.inspect(NAME))[0].fence_counter == seen.highest_fence
            await lease.release()


async def test_a_holder_without_fences_leaves_the_one_before_it() -> None:
    """No fence is greater than that; of a name that never had one there is none."""
    async with world(3) as w, w.process(fencing=False) as plain:
        async with plain.lock(NAME):
            assert (await look(plain)).highest_fence is None
        async with w.manager.lock(NAME) as lease:
            pass
        async with plain.lock(NAME):
            assert (await look(plain)).highest_fence == lease.fence


async def test_a_node_that_is_ahead_or_behind_is_in_the_minority() -> None:
    """One alone tells its own counter; the fence is where a majority that has the holder stands."""
    async with world(5) as w, w.manager.lock(NAME) as lease:
        assert lease.fence is not None
        stand(w.nodes[0], lease.fence + 2)
        stand(w.nodes[1], lease.fence - 2)
        seen = await look(w.manager)
        assert seen.highest_fence == lease.fence
        assert [node.fence_counter for node in seen.nodes][:3] == [
            lease.fence + 2,
            lease.fence - 2,
            lease.fence,
        ]
        w.nodes[2].delete(PREFIX + NAME.encode())  # its counter is no word for the holder
        assert (await look(w.manager)).highest_fence is None
        assert (await look(w.manager)).state == "held"


@pytest.mark.parametrize("said", [b"nonsense", b"-7", b"1e400", b"9" * 100, None, [b"a list"]])
async def test_what_is_no_number_is_no_fence(said: bytes | list[bytes] | None) -> None:
    """Another program's value under the counter's name hides neither the holder nor other nodes' counters."""
    async with world(3) as w:
        w.occupy(NAME, 60.0, value=ANOTHER)
        for node in w.nodes[1:]:
            stand(node, 42)
        if said is not None:
            w.nodes[0]._server.data[counter(NAME)] = said, None
        seen = await look(w.manager)
        assert [node.fence_counter for node in seen.nodes] == [None, 42, 42]
        assert (seen.state, seen.held_by, seen.highest_fence) == ("held", 3, 42)


async def test_another_programs_lock_beside_a_counter() -> None:
    """It takes no fences: the counter is that of a holder before it."""
    async with world(3) as w:
        async with w.manager.lock(NAME) as lease:
            pass
        w.occupy(NAME, 60.0, value=STRANGER)
        seen = await look(w.manager)
        assert (seen.kind, seen.highest_fence) == (None, lease.fence)


# -- whatever happens --------------------------------------------------------------------------------


async def disturb(random: Random, w: World) -> None:
    """Have a node stand still for a while, or lose its memory, or the lock's key alone."""
    node = random.choice(w.nodes)
    what = random.randrange(6)
    if what in (0, 1):
        node.freeze()
        await asyncio.sleep(random.random() / 5)
        node.thaw()
    elif what == 2:
        node.restart()
    elif what == 3:
        node.delete(PREFIX + NAME.encode())


async def try_once(random: Random, manager: LockManager) -> Lease | None:
    """Try to acquire the lock, alone."""
    with contextlib.suppress(LockNotAcquiredError):
        return await random.choice((manager.lock(NAME), manager.rwlock(NAME).write())).try_acquire()
    return None


@pytest.mark.parametrize("seed", range(12))
async def test_no_fence_is_above_what_is_seen(seed: int) -> None:
    """Whatever becomes of nodes: none that was given out so far; and nearly always it is the holder's."""
    random, given, told, exact = Random(seed), [0], 0, 0
    async with world(3, restart_quarantine=0) as w, w.process(restart_quarantine=0) as other:
        for _ in range(60):
            disturbing = asyncio.create_task(disturb(random, w))
            tries = await asyncio.gather(*(try_once(random, each) for each in (w.manager, other)))
            leases = [lease for lease in tries if lease is not None]
            given += [lease.fence or 0 for lease in leases]
            seen = await look(random.choice((w.manager, other)))
            if seen.highest_fence is not None:
                told += 1
                exact += seen.highest_fence == given[-1]
                assert seen.highest_fence >= max(given)
            for lease in leases:
                await lease.release()
            await disturbing
    assert told > 10
    assert exact > 0.9 * told
