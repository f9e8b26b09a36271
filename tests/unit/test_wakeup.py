"""Release notices: waiters in other processes ask again at once, and a lost notice costs a poll (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator

import pytest

from aioredlock_ng import LockManager, LockTakenError, RetryPolicy
from aioredlock_ng._acquire.notices import ReleaseWaiter, _told
from aioredlock_ng._core.slots import ANY
from aioredlock_ng._node import channels
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_server import MemoryServer
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    PREFIX,
    TTL,
    End,
    World,
    count,
    drawn_backoffs,
    in_task,
    opened,
    sent,
    sim,
    virtual,
    world,
)

NAME = "a"
CHANNEL = PREFIX + NAME.encode()
ROUND_TRIP = 2 * LATENCY

NO_POLL = RetryPolicy(base=0.01, cap=1000.0)
"""With it nothing but a notice explains a win within the time of a test."""

CAP = RetryPolicy().cap

A_FEW = 3.0
"""Round trips from a release to the win of the waiter: the notice, a part of one for jitter, the win."""


def listeners(node: MemoryNode, name: str = NAME) -> int:
    """Return how many connections listen for releases of a name."""
    reply = node.execute([b"PUBSUB", b"NUMSUB", PREFIX + name.encode()])
    return int(reply.rsplit(b":", 1)[1])


def heard(w: World, name: str = NAME) -> list[int]:
    """Return how many listen for releases of a name on each node."""
    return [listeners(node, name) for node in w.nodes]


def forge(w: World) -> None:
    """Publish on the channel of the lock, as any client may."""
    for node in w.nodes:
        node.execute([b"PUBLISH", CHANNEL, b""])


@contextlib.asynccontextmanager
async def waiting(w: World, **options: object) -> AsyncIterator[asyncio.Task[End]]:
    """Let a waiter wait for the lock in a process of its own; give up at the end if it has not got it."""
    async with w.process(**options) as other:
        task = in_task(other.lock(NAME).acquire)
        await asyncio.sleep(1.0)
        assert not task.done()
        yield task
        task.cancel()
        await asyncio.wait((task,))


# -- heard -------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("fencing", [True, False])
@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_waiter_gets_in_a_few_round_trips_after_the_release(number, fencing, seed):
    """However long a lock was held, and without any poll, another process has it at once afterwards."""

    @virtual
    async def main() -> None:
        async with world(number, seed=seed, fencing=fencing) as w:
            lease = await w.manager.lock(NAME).acquire()
            async with waiting(w, fencing=fencing, retry=NO_POLL) as waiter:
                await asyncio.sleep(2.5 * TTL)
                released = sim().time()
                await lease.release()
                end = await waiter
                assert end.error is None
                assert end.at - released <= A_FEW * ROUND_TRIP

    main()


@pytest.mark.parametrize("fault", ["frozen", "dead"])
def test_a_majority_of_notices_is_enough(fault):
    """A node that tells nothing delays no waiter."""

    @virtual
    async def main() -> None:
        async with world(3) as w:
            lease = await w.manager.lock(NAME).acquire()
            if fault == "frozen":
                w.nodes[1].freeze()
            else:
                w.nodes[1].crash()
            async with waiting(w, retry=NO_POLL) as waiter:
                released = sim().time()
                release = asyncio.create_task(lease.release())
                end = await waiter
                assert end.error is None
                assert end.at - released <= A_FEW * ROUND_TRIP
                w.nodes[1].thaw()
                await release

    main()


@virtual
async def test_nodes_that_were_free_all_along_need_no_notice():
    """Held on a bare majority, a lock is free as soon as one of those tells so: the others had granted it."""
    async with world(5) as w:
        lease = await w.manager.lock(NAME, extension=PLAIN).acquire()
        w.vacate(NAME, 3, 4)
        async with waiting(w, retry=NO_POLL) as waiter:
            w.nodes[0].freeze()
            w.nodes[1].freeze()
            released = sim().time()
            release = asyncio.create_task(lease.release())
            end = await waiter
            assert end.error is None
            assert end.at - released <= A_FEW * ROUND_TRIP
            w.nodes[0].thaw()
            w.nodes[1].thaw()
            await release


@virtual
async def test_a_minority_of_notices_wakes_no_waiter():
    """What a single node of three tells makes no waiter ask."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=NO_POLL):
            before = count(w.nodes[0], "acquire")
            for _ in range(10):
                w.nodes[2].execute([b"PUBLISH", CHANNEL, b""])
                await asyncio.sleep(0.1)
            assert count(w.nodes[0], "acquire") == before
            await lease.release()


@pytest.mark.heavy
@pytest.mark.parametrize("after", [step / 4 for step in range(25)])
def test_a_release_between_refusal_and_subscription_is_not_missed(after):
    """A release at any moment of a waiter's first try, by quarters of a way, is as good as heard."""

    @virtual
    async def main() -> None:
        async with world() as w, w.process(retry=NO_POLL) as other:
            lease = await other.lock(NAME).acquire()
            waiter = in_task(w.manager.lock(NAME).acquire)
            await asyncio.sleep(after * LATENCY)
            released = sim().time()
            await lease.release()
            end = await waiter
            assert end.error is None
            # The first try and its undo, before the jitter and the win.
            assert end.at - released <= (2 + A_FEW) * ROUND_TRIP

    main()


@virtual
async def test_a_notice_wakes_a_waiter_for_one_of_several_names():
    """A lock over several names listens to each of them, and gets in when the last one is free."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        first, second = await w.manager.lock("b").acquire(), await w.manager.lock("c").acquire()
        waiter = in_task(other.lock("c", "a", "b").acquire)
        await asyncio.sleep(1)
        assert [heard(w, name) for name in "abc"] == [[1] * 3] * 3
        await first.release()
        await asyncio.sleep(1)
        assert not waiter.done()
        released = sim().time()
        await second.release()
        end = await waiter
        assert end.error is None
        assert end.at - released <= A_FEW * ROUND_TRIP
        assert [heard(w, name) for name in "abc"] == [[0] * 3] * 3


@virtual
async def test_a_lock_over_several_names_wakes_a_waiter_for_one_of_them():
    """Its release is told on the channel of each name."""
    async with world() as w:
        lease = await w.manager.lock("0", NAME, "z").acquire()
        async with waiting(w, retry=NO_POLL) as waiter:
            released = sim().time()
            await lease.release()
            assert (await waiter).at - released <= A_FEW * ROUND_TRIP


# -- not heard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connections", "messages"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_lost_notice_costs_at_most_a_poll(how, seed, monkeypatch):
    """Connections that break at the release, and messages that go nowhere, delay a waiter by one wait."""

    @virtual
    async def main() -> None:
        async with world(seed=seed) as w:
            lease = await w.manager.lock(NAME).acquire()
            async with waiting(w) as waiter:
                released = sim().time()
                if how == "connections":
                    for node in w.nodes:
                        node.disconnect()
                else:
                    monkeypatch.setattr(MemoryServer, "publish", lambda *_: 0)
                await lease.release()
                end = await waiter
                assert end.error is None
                # Connections are up again after 0.05 s; recorded releases leave then.
                assert end.at - released <= CAP + 0.05 + 4 * ROUND_TRIP

    main()


@virtual
async def test_a_disconnected_client_listens_again():
    """After its connections have broken a waiter hears of the next release all the same."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=NO_POLL) as waiter:
            for node in w.nodes:
                node.disconnect()
            await asyncio.sleep(1)
            assert heard(w) == [1] * 3
            released = sim().time()
            await lease.release()
            assert (await waiter).at - released <= A_FEW * ROUND_TRIP


@virtual
async def test_a_holder_that_publishes_nothing_is_polled():
    """A plain DEL by another implementation is found out within one wait: at most the cap of the policy."""
    async with world() as w:
        for number in range(10):
            w.occupy(NAME, 1000.0)
            task = in_task(w.manager.lock(NAME).acquire)
            await asyncio.sleep(3 + number / 7)
            assert not task.done()
            deleted = sim().time()
            w.vacate(NAME)
            end = await task
            assert end.error is None
            assert end.at - deleted <= CAP + 3 * ROUND_TRIP


@virtual
async def test_without_room_to_listen_a_waiter_polls(monkeypatch):
    """A waiter that cannot subscribe backs off as ever, and gets in after at most one wait."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w) as waiter:
            assert heard(w) == [0] * 3
            released = sim().time()
            await lease.release()
            end = await waiter
            assert end.error is None
            assert end.at - released <= CAP + 3 * ROUND_TRIP


@virtual
async def test_the_waits_of_a_poll_grow_from_try_to_try(monkeypatch):
    """Each is drawn from the interval of its own number, beginning with the shortest (R13)."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)
    policy = RetryPolicy(base=0.01, cap=0.2)
    drawn = drawn_backoffs(monkeypatch, policy)
    async with world() as w, w.manager.lock(NAME), waiting(w, retry=policy):
        assert len(drawn) > 5
        assert drawn == list(range(len(drawn)))


@virtual
async def test_a_writer_that_hears_of_writers_alone_polls(monkeypatch):
    """It waits for readers too, of which the other channel tells: both must stand (R22)."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 1)
    policy = RetryPolicy(base=0.01, cap=0.2)
    drawn = drawn_backoffs(monkeypatch, policy)
    async with world() as w, w.manager.rwlock(NAME).read(), w.process(retry=policy) as other:
        task = in_task(other.rwlock(NAME).write().acquire)
        await asyncio.sleep(1.0)
        assert len(drawn) > 5
        assert drawn == list(range(len(drawn)))
        task.cancel()
        await asyncio.wait((task,))


# -- hints, not votes --------------------------------------------------------------------------------


@virtual
async def test_a_forged_notice_lets_no_client_in():
    """A message on the channel from any client makes waiters ask, and the answer is that the lock is held."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=NO_POLL) as waiter:
            for _ in range(20):
                before = count(w.nodes[0], "acquire")
                forge(w)
                await asyncio.sleep(0.1)
                assert count(w.nodes[0], "acquire") == before + 1
                assert not waiter.done()
            assert lease.held
            assert w.holders(NAME) == [lease._holding.owner] * 3
            await lease.release()
            assert (await waiter).error is None


@pytest.mark.heavy
@pytest.mark.timeout(60)
@virtual
async def test_a_flood_of_forged_notices_is_bounded():
    """However many are published, and however long, a waiter asks at most once in two round trips."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w) as waiter:
            before, began = count(w.nodes[0], "acquire"), sim().time()
            while sim().time() < began + 5:  # for more than a thousand tries
                forge(w)
                await asyncio.sleep(LATENCY / 2)
            assert not waiter.done(), waiter
            tries = count(w.nodes[0], "acquire") - before
            assert tries <= 5 / (2 * ROUND_TRIP) + 1
            released = sim().time()
            await lease.release()
            end = await waiter
            assert end.error is None
            assert end.at - released <= (2 + A_FEW) * ROUND_TRIP


# -- many that are told at once -----------------------------------------------------------------------


async def crowd(managers: int, seed: int) -> tuple[float, float]:
    """Let so many processes wait for one release.

    Returns:
        The longest time that the lock was free in between, in round trips, and how often each node
        was asked per lock.
    """
    draw = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        latency = lambda: LATENCY * draw.uniform(0.8, 1.2)  # noqa: E731
        w = await stack.enter_async_context(world(5, seed=seed, latency=latency, retry=NO_POLL))
        others: list[LockManager] = [
            await stack.enter_async_context(opened(w.nodes, seed=100 * seed + number, retry=NO_POLL))
            for number in range(managers)
        ]
        times: list[float] = []

        async def once(manager: LockManager) -> None:
            async with manager.lock(NAME):  # which is released in the same moment
                times.append(sim().time())

        lease = await w.manager.lock(NAME).acquire()
        tasks = [asyncio.create_task(once(manager)) for manager in others]
        await asyncio.sleep(1)
        before = count(w.nodes[0], "acquire")
        released = sim().time()
        await lease.release()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0.1)
        assert w.keys == [()] * 5, "split votes were not undone"
        assert heard(w) == [0] * 5
        for node in w.nodes:
            asked = [one.owner for one in sent(node) if one.kind == "acquire"]
            assert sorted(one.owner for one in sent(node) if one.kind == "release") == sorted(asked)
        waits = [won - gone for gone, won in itertools.pairwise([released, *times])]
        return max(waits) / ROUND_TRIP, (count(w.nodes[0], "acquire") - before) / managers


@pytest.mark.heavy
@pytest.mark.parametrize(("managers", "round_trips"), [(2, 6), (3, 8), (4, 12), (8, 40)])
def test_split_votes_settle_soon(managers, round_trips):
    """Processes that are all told of a release take it in turns, a few round trips apart, without polls."""
    waits = []
    for seed in range(1, 11):

        @virtual
        async def main(seed: int = seed) -> None:
            waits.append(await crowd(managers, seed))

        main()
    longest = [wait for wait, _ in waits]
    assert max(longest) <= round_trips
    assert sum(longest) / len(longest) <= 8
    assert max(asked for _, asked in waits) <= 3, "tries per lock"


# -- an ear, notice by notice ------------------------------------------------------------------------


async def test_an_ear_counts_nodes_since_it_was_cleared():
    """A majority is enough, one node however often is not; it begins anew when the nodes are asked (R13)."""
    ear = ReleaseWaiter(3)
    ear.told(0, 2)
    ear.told(0, 2)
    assert not ear.enough().done()
    ear.told(2, 2)
    assert ear.enough().result()
    ear.clear()
    ear.told(1, 2)
    assert not ear.enough().done(), "two of these were heard before"


async def test_an_ear_passes_a_release_by_once():
    """What a node that was slower tells of that release counts for nothing, what it tells then does; and when
    the nodes have been asked there is nothing to be passed by any more (R33).
    """
    ear = ReleaseWaiter(3)
    assert ear.crowd == 0, "unknown"
    ear.told(0, 4)
    assert ear.crowd == 4
    ear.pass_by()
    ear.told(1, 4)
    ear.told(2, 4)
    assert not ear.enough().done(), "of the release that is left to others"
    ear.told(0, 4)
    ear.told(1, 4)
    assert ear.enough().done()
    ear.pass_by()
    ear.clear()
    ear.told(2, 4)
    ear.told(1, 4)
    assert ear.enough().done()


@pytest.mark.parametrize(
    ("message", "crowd"),
    [(b"1", 1), (b"999999", 999_999), (b"1000000", 0), (b"", 0), (b"-1", 0), (b"7 ", 0), ("7", 0), (7, 0)],
    ids=repr,
)
def test_what_a_notice_says_is_read_with_care(message, crowd):
    """Any client may publish: what is no number of up to six digits says nothing (R33)."""
    assert _told(message) == (crowd, ANY)


@pytest.mark.parametrize(
    ("message", "crowd", "slot"),
    [
        (b"7:3", 7, 3),
        (b":255", 0, 255),
        (b"7:256", 7, ANY),
        (b"7:", 7, ANY),
        (b"7:x", 7, ANY),
        (b":", 0, ANY),
    ],
    ids=repr,
)
def test_a_notice_may_name_a_slot(message, crowd, slot):
    """One that a semaphore can have (R24)."""
    assert _told(message) == (crowd, slot)


async def test_an_ear_counts_nodes_for_each_slot():
    """A majority must tell that the same slot is free; what is passed by is that slot's release (R24)."""
    ear = ReleaseWaiter(3)
    ear.told(0, 4, 1)
    ear.told(1, 4, 2)
    assert not ear.enough().done()
    ear.told(2, 4, 2)
    assert (ear.enough().done(), ear.slot) == (True, 2)
    ear.pass_by()
    ear.told(0, 4, 2)
    assert not ear.enough().done(), "it comes late of what was passed by"
    ear.told(1, 4, 1)
    assert (ear.enough().done(), ear.slot) == (True, 1)
    ear.clear()
    assert ear.slot == ANY


# -- only waiters listen ----------------------------------------------------------------


@virtual
async def test_a_client_that_is_not_refused_listens_to_nothing():
    """A lock that is free costs no subscription, nor does a single try of one that is not."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock(NAME).acquire()
        assert await other.lock(NAME).try_acquire() is None
        with pytest.raises(LockTakenError):
            await other.lock(NAME, blocking_timeout=0).acquire()
        await lease.release()
        assert heard(w) == [0] * 3
        assert count(w.nodes[0], "SUBSCRIBE") == 0


@pytest.mark.parametrize("how", ["won", "timed out", "cancelled", "closed", "failed"])
def test_no_process_listens_without_a_waiter(how):
    """However the last waiter of a process ends: its subscriptions end with it, and not before."""

    @virtual
    async def main() -> None:
        async with world() as w, w.process(retry=NO_POLL) as other:
            lease = await w.manager.lock(NAME).acquire()
            patience = 2.0 if how == "timed out" else None
            tasks = [in_task(other.lock(NAME, blocking_timeout=patience).acquire) for _ in range(3)]
            await asyncio.sleep(1)
            assert heard(w) == [1] * 3
            if how == "won":
                await lease.release()
            elif how == "cancelled":
                for task in tasks[:2]:
                    task.cancel()
                await asyncio.sleep(0.1)
                assert heard(w) == [1] * 3, "a task still waits"
                tasks[2].cancel()
            elif how == "closed":
                await other.aclose()
            elif how == "failed":
                for node in w.nodes:
                    node.set(CHANNEL, None)  # something that is no lock: no use in waiting for it
                forge(w)
            ends = await asyncio.gather(*tasks)
            assert all((end.error is None) == (how == "won") for end in ends)
            await asyncio.sleep(ROUND_TRIP)
            assert heard(w) == [0] * 3
            for node in w.nodes:
                node.delete(CHANNEL)
            await lease.release()

    main()


@virtual
async def test_a_queue_keeps_one_subscription_while_it_waits():
    """The next of a process is told by the subscription of the one before: no process subscribes twice."""
    async with world() as w, w.process(retry=NO_POLL) as one, w.process(retry=NO_POLL) as other:

        async def hurry(manager: LockManager) -> None:
            for _ in range(50):
                async with manager.lock(NAME):
                    await asyncio.sleep(LATENCY)

        tasks = [in_task(lambda m=m: hurry(m)) for m in (one, other) for _ in range(4)]
        assert [end.error for end in await asyncio.gather(*tasks)] == [None] * 8
        await asyncio.sleep(ROUND_TRIP)
        for node in w.nodes:
            # Once each, and perhaps once more by a task that is alone at the end of its queue.
            assert 2 <= count(node, "SUBSCRIBE") <= 4
            assert count(node, "UNSUBSCRIBE") == count(node, "SUBSCRIBE")


@virtual
async def test_a_queue_that_gives_up_behind_a_lease_listens_no_more():
    """What its head has left to those behind it ends with them, while the head has the lock."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await w.manager.lock(NAME).acquire()
        head, *behind = (asyncio.create_task(other.lock(NAME).acquire()) for _ in range(3))
        await asyncio.sleep(1)
        await lease.release()
        lease = await head
        assert heard(w) == [1] * 3
        behind[0].cancel()
        await asyncio.sleep(ROUND_TRIP)
        assert heard(w) == [1] * 3
        behind[1].cancel()
        await asyncio.sleep(ROUND_TRIP)
        assert heard(w) == [0] * 3
        await lease.release()


@virtual
async def test_many_names_leave_no_subscription():
    """Subscriptions of as many names as one likes are gone with their waiters."""
    names = [f"{number}" for number in range(100)]
    async with world() as w, w.process(retry=NO_POLL) as other:
        leases = [await w.manager.lock(name).acquire() for name in names]
        tasks = [in_task(other.lock(name).acquire) for name in names]
        await asyncio.sleep(1)
        assert all(heard(w, name) == [1] * 3 for name in names)
        await asyncio.gather(*(lease.release() for lease in leases))
        await asyncio.gather(*tasks)
        await asyncio.sleep(ROUND_TRIP)
        for manager in (w.manager, other):
            assert manager._life.session is not None
            assert not manager._life.session.notices._waiters
            assert all(not len(node._channels) for node in manager._life.session.nodes)
        assert all(not node._server._channels for node in w.nodes)


# -- what is told of it ------------------------------------------------------------------------------


@virtual
async def test_a_task_that_waits_for_a_notice_counts_as_waiting():
    """The statistics count all that wait, for a notice as for the turn, and none afterwards."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await w.manager.lock(NAME, extension=PLAIN).acquire()
        tasks = [in_task(other.lock(NAME).acquire) for _ in range(4)]
        await asyncio.sleep(1)
        assert other.statistics().waiting == 4
        assert w.manager.statistics().waiting == 0
        await lease.release()
        assert all(end.error is None for end in await asyncio.gather(*tasks))
        assert other.statistics().waiting == 0
