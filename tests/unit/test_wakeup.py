"""Release notices: waiters in other processes ask again at once, and a lost notice costs a poll (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator

import pytest

from aioredlock_ng import Lease, LockManager, RetryPolicy
from aioredlock_ng._acquire.notices import ReleaseWaiter, _told
from aioredlock_ng._core.slots import ANY
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_commands import COMMANDS
from aioredlock_ng.testing._memory_data import CommandError
from tests.unit.crowds import crowd
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    PREFIX,
    TTL,
    End,
    World,
    count,
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


def forge(*nodes: MemoryNode) -> None:
    """Publish on the channel of the lock, as any client may."""
    for node in nodes:
        node.execute([b"PUBLISH", CHANNEL, b""])


@contextlib.asynccontextmanager
async def waiting(w: World, **options: object) -> AsyncIterator[asyncio.Task[End]]:
    """Let a waiter wait for the lock in a process of its own; give up at the end if it has not got it."""
    async with w.process(**{"retry": NO_POLL, **options}) as other:
        task = in_task(other.lock(NAME).acquire)
        await asyncio.sleep(1.0)
        assert not task.done()
        yield task
        task.cancel()
        await asyncio.wait((task,))


async def lets_in(lease: Lease, waiter: asyncio.Task[End], within: float = A_FEW * ROUND_TRIP) -> None:
    """Release a lock, and see that the waiter has it in time."""
    released = sim().time()
    release = asyncio.create_task(lease.release())
    end = await waiter
    assert end.error is None
    assert end.at - released <= within
    await release


# -- heard -------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("fencing", [True, False])
@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("seed", range(1, 4))
@virtual
async def test_a_waiter_gets_in_a_few_round_trips_after_the_release(number, fencing, seed):
    """However long a lock was held, and without any poll, another process has it at once afterwards."""
    async with world(number, seed=seed, fencing=fencing) as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, fencing=fencing) as waiter:
            await asyncio.sleep(2.5 * TTL)
            await lets_in(lease, waiter)


@pytest.mark.parametrize("fault", ["frozen", "dead", "free all along"])
@virtual
async def test_a_majority_of_notices_is_enough(fault):
    """A node that tells nothing delays no waiter; one that was free, and had granted it, need not tell."""
    async with world(5 if fault == "free all along" else 3) as w:
        lease = await w.manager.lock(NAME, extension=PLAIN).acquire()
        mute = w.nodes[1:2]
        if fault == "free all along":
            w.vacate(NAME, 3, 4)
            mute = w.nodes[:2]
        async with waiting(w) as waiter:
            for node in mute:
                node.crash() if fault == "dead" else node.freeze()
            await lets_in(lease, waiter)
            for node in mute:
                node.thaw()


@virtual
async def test_a_minority_of_notices_wakes_no_waiter():
    """What a single node of three tells makes no waiter ask."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w):
            before = count(w.nodes[0], "acquire")
            for _ in range(10):
                forge(w.nodes[2])
                await asyncio.sleep(0.1)
            assert count(w.nodes[0], "acquire") == before
            await lease.release()


@pytest.mark.heavy
@pytest.mark.parametrize("after", [step / 4 for step in range(25)])
@virtual
async def test_a_release_between_refusal_and_subscription_is_not_missed(after):
    """A release at any moment of a waiter's first try, by quarters of a way, is as good as heard."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await other.lock(NAME).acquire()
        waiter = in_task(w.manager.lock(NAME).acquire)
        await asyncio.sleep(after * LATENCY)
        await lets_in(lease, waiter, (2 + A_FEW) * ROUND_TRIP)  # with the first try and its undo


@virtual
async def test_a_lock_over_several_names_tells_of_each_and_listens_to_each():
    """It gets in when the last one is free, and its release wakes a waiter for one of them."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        first, second = await w.manager.lock("b").acquire(), await w.manager.lock("c").acquire()
        waiter = in_task(other.lock("c", NAME, "b").acquire)
        await asyncio.sleep(1)
        assert [heard(w, name) for name in "abc"] == [[1] * 3] * 3
        await first.release()
        await asyncio.sleep(1)
        assert not waiter.done()
        await lets_in(second, waiter)
        assert [heard(w, name) for name in "abc"] == [[0] * 3] * 3
        lease = await w.manager.lock("0", NAME, "z").acquire()
        async with waiting(w) as waiter:
            await lets_in(lease, waiter)


# -- not heard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connections", "messages"])
@pytest.mark.parametrize("seed", range(1, 6))
@virtual
async def test_a_lost_notice_costs_at_most_a_poll(how, seed, monkeypatch):
    """Connections that break at the release, and messages that go nowhere, delay a waiter by one wait."""
    async with world(seed=seed) as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=RetryPolicy()) as waiter:
            if how == "connections":
                for node in w.nodes:
                    node.disconnect()
            else:
                monkeypatch.setattr("aioredlock_ng.testing._memory_server.MemoryServer.publish", lambda *_: 0)
            # Connections are up again after 0.05 s; recorded releases leave then.
            await lets_in(lease, waiter, CAP + 0.05 + 4 * ROUND_TRIP)


@virtual
async def test_a_disconnected_client_listens_again():
    """After its connections have broken a waiter hears of the next release all the same."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w) as waiter:
            for node in w.nodes:
                node.disconnect()
            await asyncio.sleep(1)
            assert heard(w) == [1] * 3
            await lets_in(lease, waiter)


@virtual
async def test_without_room_to_listen_a_waiter_polls(monkeypatch):
    """A waiter that cannot subscribe backs off as ever, and gets in after at most one wait."""
    monkeypatch.setattr("aioredlock_ng._node.channels.MAX_CHANNELS", 0)
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=RetryPolicy()) as waiter:
            assert heard(w) == [0] * 3
            await lets_in(lease, waiter, CAP + 3 * ROUND_TRIP)


# -- hints, not votes --------------------------------------------------------------------------------


@virtual
async def test_a_forged_notice_lets_no_client_in():
    """A message on the channel from any client makes waiters ask, and the answer is that the lock is held."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w) as waiter:
            for _ in range(20):
                before = count(w.nodes[0], "acquire")
                forge(*w.nodes)
                await asyncio.sleep(0.1)
                assert count(w.nodes[0], "acquire") == before + 1
                assert not waiter.done()
            assert lease.held
            assert w.holders(NAME) == [lease._holding.owner] * 3
            await lets_in(lease, waiter)


@pytest.mark.heavy
@pytest.mark.timeout(60)
@virtual
async def test_a_flood_of_forged_notices_is_bounded():
    """However many are published, and however long, a waiter asks at most once in two round trips."""
    async with world() as w:
        lease = await w.manager.lock(NAME).acquire()
        async with waiting(w, retry=RetryPolicy()) as waiter:
            before, began = count(w.nodes[0], "acquire"), sim().time()
            while sim().time() < began + 5:  # for more than a thousand tries
                forge(*w.nodes)
                await asyncio.sleep(LATENCY / 2)
            assert not waiter.done(), waiter
            tries = count(w.nodes[0], "acquire") - before
            assert tries <= 5 / (2 * ROUND_TRIP) + 1
            await lets_in(lease, waiter, (2 + A_FEW) * ROUND_TRIP)


# -- many that are told at once -----------------------------------------------------------------------


async def told_at_once(managers: int, seed: int) -> tuple[float, float]:
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

    @virtual
    async def main(seed: int) -> None:
        waits.append(await told_at_once(managers, seed))

    for seed in range(1, 11):
        main(seed)
    longest = [wait for wait, _ in waits]
    assert max(longest) <= round_trips
    assert sum(longest) / len(longest) <= 8
    assert max(asked for _, asked in waits) <= 3, "tries per lock"


@pytest.mark.heavy
def test_without_the_right_to_count_all_is_as_without_crowds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd of unknown size follows every notice (R33)."""

    def denied(*_: object) -> None:
        raise CommandError("NOPERM User locker has no permissions to run the 'pubsub|numsub' command")

    monkeypatch.setitem(COMMANDS, b"PUBSUB", denied)
    figures = crowd(5, seconds=0.5)
    assert figures.rate >= 120, str(figures)
    assert figures.tries_each > 4, "all ask"
    assert min(figures.wins) > 0, str(figures)


# -- an ear, notice by notice ------------------------------------------------------------------------


async def test_an_ear_counts_nodes_since_it_was_cleared():
    """A majority is enough, one node however often is not; it begins again when the nodes are asked (R13)."""
    ear = ReleaseWaiter(3)
    assert ear.crowd == 0, "unknown"
    ear.told(0, 2)
    ear.told(0, 2)
    assert ear.crowd == 2
    assert not ear.enough().done()
    ear.told(2, 2)
    assert ear.enough().result()
    ear.clear()
    ear.told(1, 2)
    assert not ear.enough().done(), "two of these were heard before"


async def test_what_comes_late_of_a_release_that_was_let_pass_is_not_the_next_one() -> None:
    """A majority is one release, and what others tell belongs to it; asking the nodes ends that (R33)."""
    ear = ReleaseWaiter(5)
    for node in (0, 1, 2):
        assert not ear.enough().done()
        ear.told(node, 50)
    assert ear.enough().done()
    ear.pass_by()
    for node in (3, 4, 0, 1):
        ear.told(node, 50)
        assert not ear.enough().done()
    ear.told(4, 50)
    assert ear.enough().done()
    ear.pass_by()
    ear.clear()
    for node in (2, 3, 0):
        ear.told(node, 50)
    assert ear.enough().done()


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


@pytest.mark.parametrize(
    ("message", "crowd", "slot"),
    [
        *((message, 0, ANY) for message in (b"1000000", b"", b"-1", b"7 ", "7", 7, b":")),
        *((b"%d" % number, number, ANY) for number in (1, 999_999)),
        *((message, 7, ANY) for message in (b"7:256", b"7:", b"7:x")),
        (b"7:3", 7, 3),
        (b":255", 0, 255),
    ],
    ids=repr,
)
def test_what_a_notice_says_is_read_with_care(message, crowd, slot):
    """Any client may publish: only a number of up to six digits (R33), and a possible slot (R24), say it."""
    assert _told(message) == (crowd, slot)


# -- only waiters listen ----------------------------------------------------------------


@virtual
async def test_a_client_that_is_not_refused_listens_to_nothing():
    """A lock that is free costs no subscription, nor does a single try of one that is not."""
    async with world() as w, w.process() as other:
        lease = await w.manager.lock(NAME).acquire()
        assert await other.lock(NAME).try_acquire() is None
        await lease.release()
        assert heard(w) == [0] * 3
        assert count(w.nodes[0], "SUBSCRIBE") == 0


@pytest.mark.parametrize("how", ["won", "timed out", "cancelled", "closed", "failed"])
@virtual
async def test_no_process_listens_without_a_waiter(how):
    """However the last waiter of a process ends: its subscriptions end with it, and not before."""
    async with world() as w, w.process(retry=NO_POLL) as other:
        lease = await w.manager.lock(NAME).acquire()
        patience = 2.0 if how == "timed out" else None
        tasks = [in_task(other.lock(NAME, blocking_timeout=patience).acquire) for _ in range(3)]
        await asyncio.sleep(1)
        assert heard(w) == [1] * 3
        assert (other.statistics().waiting, w.manager.statistics().waiting) == (3, 0)
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
            forge(*w.nodes)
        ends = await asyncio.gather(*tasks)
        assert all((end.error is None) == (how == "won") for end in ends)
        await asyncio.sleep(ROUND_TRIP)
        assert heard(w) == [0] * 3
        assert other.statistics().waiting == 0
        for node in w.nodes:
            node.delete(CHANNEL)
        await lease.release()


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
        for task, number in zip(behind, (1, 0), strict=True):
            assert heard(w) == [1] * 3
            task.cancel()
            await asyncio.sleep(ROUND_TRIP)
            assert heard(w) == [number] * 3
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
            assert not manager._life.session.notices._waiters
            assert all(not len(node._channels) for node in manager._life.session.nodes)
        assert all(not node._server._channels for node in w.nodes)
