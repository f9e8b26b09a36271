"""Counting semaphores on virtual time: slots, fences, strays, other numbers, other kinds (R24 to R26)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aioredlock_ng import ConfigurationError, WouldDeadlockError
from tests.unit.tasks import in_task, sim, turns, within
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import LATENCY, TTL, ago, world

NAME = "gpu"
KEY = PREFIX + NAME.encode()
COUNTERS = PREFIX + b"slots:{" + KEY + b"}"
OTHER = b"a" * 40 + b":1700000000000s:other"


def slots(node):
    """Return the owners that a node has, by slot."""
    entries = {int(slot): entry.split(b":", 1) for slot, entry in node._server.fields(KEY).items()}
    now_ms = node._server.time_us() // 1000
    return {slot: owner for slot, (till, owner) in sorted(entries.items()) if int(till) >= now_ms}


def hold(node, slot, owner=OTHER, ttl=60.0):
    """Have another client hold a slot of a node."""
    server, ttl_ms = node._server, round(ttl * 1000)
    server.hset(KEY, b"%d" % slot, b"%d:%b" % (server.time_us() // 1000 + ttl_ms, owner))
    if server.pttl(KEY) < ttl_ms:
        server.pexpire(KEY, ttl_ms)


def free(node, slot):
    """Take that back."""
    node._server.execute([b"HDEL", KEY, b"%d" % slot])


async def permits(manager, number, limit):
    """Acquire a number of permits."""
    return [await manager.semaphore(NAME, permits=limit).acquire() for _ in range(number)]


async def give_back(*leases):
    """Release all of them."""
    for lease in leases:
        await lease.release()


async def at_slot_0(w, slow=None, delay=LATENCY):
    """Win slot 0 of three: then nodes where that is held have granted another one; one may be slow."""
    while True:
        if slow:
            slow.latency = delay
        lease = await w.manager.semaphore(NAME, permits=3).acquire()
        if lease.slot == 0:
            return lease
        if slow:
            slow.latency = LATENCY
        await lease.release()
        await asyncio.sleep(2.0)


# -- what it is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fencing", [True, False])
async def test_so_many_hold_it_at_once_and_no_more(fencing: bool) -> None:
    """Each has a slot of its own, in whatever process; one more waits for the first that is given back."""
    async with world(5, fencing=fencing) as w, w.process(fencing=fencing) as other:
        mine, theirs = await permits(w.manager, 2, 3), await permits(other, 1, 3)
        assert {lease.slot for lease in (*mine, *theirs)} == {0, 1, 2}
        assert await w.manager.semaphore(NAME, permits=3).try_acquire() is None
        assert await other.semaphore(NAME, permits=3).try_acquire() is None
        waiting = asyncio.create_task(other.semaphore(NAME, permits=3).acquire())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        await mine[1].release()
        last = await asyncio.wait_for(waiting, 0.1)
        assert last.slot == mine[1].slot
        await give_back(mine[0], last, *theirs)
        assert w.keys == [()] * 5


async def test_one_round_trip_finds_the_last_free_slot() -> None:
    """Whatever slot it begins with: with 9 of 10 taken as with none."""
    async with world(5) as w, w.process() as other:
        taken = await permits(other, 9, 10)
        for _ in range(20):
            began, asked = sim().time(), count(w.nodes[0], "slots-acquire")
            async with w.manager.semaphore(NAME, permits=10) as lease:
                assert sim().time() - began == pytest.approx(2 * LATENCY)
                assert count(w.nodes[0], "slots-acquire") == asked + 1
                assert lease.slot not in {each.slot for each in taken}
            await asyncio.sleep(0.1)  # this process has not had it for long
        await give_back(*taken)


@pytest.mark.parametrize("number", [0, -1, 257, True, 1.5, "4", None])
async def test_a_bad_number_of_permits_is_refused(number):
    """1 to 256, with the value in the message."""
    async with world() as w:
        with pytest.raises((ValueError, TypeError), match=f"permits must be .*, got {number!r}"):
            w.manager.semaphore(NAME, permits=number)
        for most in (1, 256):
            async with w.manager.semaphore(NAME, permits=most) as lease:
                assert lease.slot in range(most)


async def test_fences_grow_for_each_slot() -> None:
    """Unique for it, and greater than those of all its earlier leases, in whatever process (R25)."""
    async with world(5) as w, w.process() as other:
        seen: dict[int | None, int] = {}
        for manager in [w.manager, other] * 20:
            for lease in await permits(manager, 2, 3):
                assert lease.fence > seen.get(lease.slot, 0)
                seen[lease.slot] = lease.fence
                await lease.release()
        assert seen.keys() == {0, 1, 2}


# -- a permit is Q grants of the same slot -------------------------------------------------------------


@pytest.mark.parametrize("fencing", [True, False])
async def test_grants_of_several_slots_are_no_permit(fencing: bool) -> None:
    """All nodes grant one, but no slot has a majority: it is refused, and all of them go back (R24)."""
    async with world(5, fencing=fencing) as w:
        for node, taken in zip(w.nodes, [(0, 1), (0, 1), (0, 2), (0, 2), (1, 2)], strict=True):
            for slot in taken:
                hold(node, slot)
        before = [slots(node) for node in w.nodes]
        assert await w.manager.semaphore(NAME, permits=3).try_acquire() is None
        await turns(3)
        assert [slots(node) for node in w.nodes] == before


async def test_every_occupation_of_the_nodes_is_judged_by_the_slot():
    """Two slots, three nodes, whatever is taken where: won if and only if one slot is free on a majority that
    is asked for it (R24).
    """
    for number, taken in enumerate(itertools.product(range(4), repeat=3)):
        async with world(3) as w:
            for node, mask in zip(w.nodes, taken, strict=True):
                for slot in (0, 1):
                    if mask >> slot & 1:
                        hold(node, slot)
            lease = await w.manager.semaphore(NAME, permits=2).try_acquire()
            granted = [
                [next((s for s in (start, 1 - start) if not mask >> s & 1), None) for mask in taken]
                for start in (0, 1)
            ]
            wins = [max(each.count(slot) for slot in (0, 1)) >= 2 for each in granted]
            if lease is None:
                assert not all(wins), number
            else:
                assert any(wins), number
                assert lease.slot in [max(range(2), key=each.count) for each in granted]
                await lease.release()


@pytest.mark.parametrize("elsewhere", [(0, 1), (3, 4), (0, 4)])
async def test_stray_slots_go_back_at_once(elsewhere):
    """A node that granted another slot than was won frees it, and takes the right one if it can (R25).

    Also one whose answer comes before the win.
    """
    async with world(5) as w:
        for number in elsewhere:
            hold(w.nodes[number], 0)
        lease = await at_slot_0(w)
        await asyncio.sleep(4 * LATENCY)
        mine = slots(w.nodes[2])[0]
        held = [[slot for slot, holder in slots(node).items() if holder == mine] for node in w.nodes]
        assert held == [[] if number in elsewhere else [0] for number in range(5)]
        votes = [vote.vote.value for vote in lease.votes]
        assert votes == ["refused" if number in elsewhere else "granted" for number in range(5)]
        for number in elsewhere:
            free(w.nodes[number], 0)
        await lease.extend()
        await asyncio.sleep(4 * LATENCY)
        assert [slots(node) for node in w.nodes] == [{0: mine}] * 5
        await lease.release()


async def test_a_straggler_gives_its_stray_slot_back():
    """Also one that answers after the win, and after its time was up; and where fences were raised (R25)."""
    for delay, timeout, raised in ((0.05, 0.1, False), (0.15, 0.1, False), (0.3, 0.4, True)):
        async with world(5, node_timeout=timeout) as w:
            slow = w.nodes[4]
            hold(slow, 0)
            for number, node in enumerate(w.nodes if raised else ()):
                node._server.hset(COUNTERS, b"0", b"%d" % (ago(-5.0) + number))
            lease = await at_slot_0(w, slow, delay)
            await asyncio.sleep(1.5 * delay)
            owner = slots(w.nodes[0])[0]
            assert owner in slots(slow).values(), "its answer is on its way"
            slow.latency = LATENCY
            await asyncio.sleep(2 * delay)
            assert owner not in slots(slow).values()
            assert [vote.vote.value for vote in lease.votes][:4] == ["granted"] * 4
            await lease.release()


async def test_a_slot_whose_answer_was_lost_goes_back_with_the_next_extension() -> None:
    """A node may have granted another slot, and its answer have been lost (R25)."""
    async with world(5) as w:
        lease = await w.manager.semaphore(NAME, permits=3).acquire()
        assert lease.slot is not None
        owner = slots(w.nodes[0])[lease.slot]
        for node in w.nodes[3:]:
            hold(node, (lease.slot + 1) % 3, owner)
        free(w.nodes[4], lease.slot)
        await lease.extend()
        await asyncio.sleep(4 * LATENCY)
        assert [slots(node) for node in w.nodes] == [{lease.slot: owner}] * 5
        await lease.release()
        assert w.keys == [()] * 5


# -- several numbers, several kinds --------------------------------------------------------------------


async def test_growing_is_immediate_and_shrinking_takes_effect_as_leases_end():
    """L is no state of the nodes: at most the greatest number that any client says (R26)."""
    async with world(3) as w, w.process() as other:
        first = await permits(w.manager, 2, 2)
        assert await w.manager.semaphore(NAME, permits=2).try_acquire() is None
        more = await permits(other, 2, 4)
        assert {lease.slot for lease in more} == {2, 3}
        await first[0].release()
        less = await other.semaphore(NAME, permits=3).try_acquire()
        assert less.slot == first[0].slot
        await give_back(*more)
        assert await w.manager.semaphore(NAME, permits=2).try_acquire() is None
        await give_back(first[1], less)


@pytest.mark.parametrize("fencing", [True, False])
async def test_a_name_of_another_kind_ends_the_acquire_with_both_named(fencing):
    """In both directions, at once, and nothing is left behind (R19)."""
    async with world(3, fencing=fencing) as w, w.process(fencing=fencing) as other:
        pool, rw = w.manager.semaphore(NAME, permits=2), other.rwlock(NAME)
        for lock, kind, there in (
            (other.lock(NAME), "mutex", "a mutex or a writer"),
            (rw.write(), "write lock", "a mutex or a writer"),
            (rw.read(), "read lock", "readers"),
        ):
            for first, then, words in (
                (
                    lock,
                    pool,
                    f"requested as a semaphore, .* which belongs to {there} or to another program: give each",
                ),
                (pool, lock, f"as a {kind}, .* which belongs to a semaphore or to another program"),
            ):
                async with first, within(TTL):
                    with pytest.raises(ConfigurationError, match=words):
                        await then.acquire()
        assert w.keys == [()] * 3


# -- tasks of one process ------------------------------------------------------------------------------


async def test_tasks_of_a_process_hold_at_the_same_time_in_their_order():
    """One asks after the other, and none asks while as many hold as may: then the nodes need not be asked."""
    async with world(3) as w:
        order, inside, most = [], set(), []

        async def work(number):
            async with w.manager.semaphore(NAME, permits=3):
                order.append(number)
                inside.add(number)
                most.append(len(inside))
                await asyncio.sleep(0.1)
                inside.remove(number)

        await asyncio.gather(*map(work, range(12)))
        assert (order, max(most)) == (list(range(12)), 3)
        assert count(w.nodes[0], "slots-acquire") == 12


async def test_a_single_try_gets_what_is_free_beside_holders_of_its_process() -> None:
    """It waits for the verdict on those before it, and is sent away only when all is taken."""
    async with world(3) as w:
        pool = w.manager.semaphore(NAME, permits=3)
        first = await pool.acquire()
        results = await asyncio.gather(*(pool.try_acquire() for _ in range(4)))
        leases = [lease for lease in results if lease is not None]
        assert len(leases) == 2
        assert await pool.try_acquire() is None
        await give_back(first, *leases)


async def test_a_task_may_have_two_permits_but_waits_for_none_of_its_own() -> None:
    """With all of them in its own blocks it would wait for itself."""
    async with world(3) as w:
        pool = w.manager.semaphore(NAME, permits=2)
        async with pool as one, pool as two:
            assert {one.slot, two.slot} == {0, 1}
            with pytest.raises(WouldDeadlockError, match="it holds 2 of 2 permits itself"):
                await pool.acquire()
        single = w.manager.semaphore("single", permits=1)
        async with single:
            with pytest.raises(WouldDeadlockError, match="it holds 1 of 1 permits itself"):
                await single.acquire()
        async with pool:
            other = asyncio.create_task(pool.acquire())
            await asyncio.sleep(0.1)
            waiting = in_task(pool.acquire)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await (await other).release()
            assert (await waiting).error is None


async def test_a_busy_process_lets_others_ask() -> None:
    """After 50 ms it lets those of other processes go first (R13)."""
    async with world(3) as w, w.process() as other:

        async def work() -> None:
            while True:
                async with w.manager.semaphore(NAME, permits=2):
                    await asyncio.sleep(0.005)

        tasks = [asyncio.create_task(work()) for _ in range(6)]
        await asyncio.sleep(0.5)
        for _ in range(5):
            began = sim().time()
            async with other.semaphore(NAME, permits=2, blocking_timeout=5.0):
                assert sim().time() - began < 1.0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_release_names_the_slot_and_a_waiter_goes_straight_for_it():
    """So that it need not try its luck among all of them (R24)."""
    async with world(3) as w, w.process() as other:
        taken = await permits(other, 8, 8)
        for lease in list(taken):
            waiting = asyncio.create_task(w.manager.semaphore(NAME, permits=8).acquire())
            await asyncio.sleep(0.05)
            asked = count(w.nodes[0], "slots-acquire")
            await lease.release()
            await asyncio.sleep(0.05)
            assert waiting.done()
            taken.append(waiting.result())
            assert taken[-1].slot == lease.slot
            assert count(w.nodes[0], "slots-acquire") == asked + 1
        await give_back(*taken)
