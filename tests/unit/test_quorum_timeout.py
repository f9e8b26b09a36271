"""`quorum_timeout`: patience for a missing quorum, apart from that for a taken lock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aioredlock_ng import LockManager, LockTakenError, QuorumUnavailableError
from aioredlock_ng._acquire.attempt import STRAGGLERS
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import LATENCY, PLAIN, TIMEOUT, TTL, World, in_task, make, opened, sim, virtual, world

EPSILON = STRAGGLERS + 10 * LATENCY
MAX_POLL = 0.5
"""Seconds: no longer than this it is that a call that waits has not asked."""


def silence(w: World) -> None:
    """Have a majority answer no more."""
    for node in w.nodes[1:]:
        node.freeze()


def speak(w: World) -> None:
    """Have it answer again."""
    for node in w.nodes[1:]:
        node.thaw()


@pytest.mark.parametrize("blocking_timeout", [None, 5, 3600])
@pytest.mark.parametrize("quorum_timeout", [0, 0.03, 2, timedelta(seconds=1)], ids=str)
def test_a_missing_quorum_ends_the_wait(quorum_timeout, blocking_timeout):
    """The call ends when the time is over, at most a `node_timeout` later, and says why."""
    seconds = quorum_timeout.total_seconds() if isinstance(quorum_timeout, timedelta) else quorum_timeout

    async def main() -> None:
        async with world() as w:
            silence(w)
            began = sim().time()
            lock = w.manager.lock("a", blocking_timeout=blocking_timeout, quorum_timeout=quorum_timeout)
            with pytest.raises(QuorumUnavailableError) as caught:
                await lock.acquire()
            assert seconds <= sim().time() - began <= seconds + TIMEOUT + EPSILON
            assert len(caught.value.votes) == 3

    virtual(main)()


@virtual
async def test_the_earlier_of_the_two_ends_it():
    """A `quorum_timeout` beyond the `blocking_timeout` changes nothing."""
    async with world() as w:
        silence(w)
        began = sim().time()
        with pytest.raises(QuorumUnavailableError):
            await w.manager.lock("a", blocking_timeout=1, quorum_timeout=9).acquire()
        assert sim().time() - began <= 1 + TIMEOUT + EPSILON


@virtual
async def test_a_taken_lock_is_waited_for():
    """A lock that a majority says is taken is waited for until the `blocking_timeout`, or the lock is had."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        held = await other.lock("a").acquire()
        began = sim().time()
        with pytest.raises(LockTakenError):
            await w.manager.lock("a", blocking_timeout=5, quorum_timeout=0.2).acquire()
        assert sim().time() - began >= 5
        waiter = asyncio.create_task(w.manager.lock("a", quorum_timeout=0).acquire())
        await asyncio.sleep(5)
        await held.release()
        await (await waiter).release()


@virtual
async def test_it_counts_from_the_last_answer_of_a_quorum():
    """A quorum that goes missing while a lock is waited for is waited for that long, and no longer."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        held = await other.lock("a", ttl=60, extension=PLAIN).acquire()
        waiter = in_task(w.manager.lock("a", quorum_timeout=3).acquire)
        await asyncio.sleep(10)
        gone = sim().time()
        silence(w)
        end = await waiter
        assert isinstance(end.error, QuorumUnavailableError)
        assert gone + 3 - MAX_POLL - TIMEOUT <= end.at <= gone + 3 + TIMEOUT
        speak(w)
        await held.release()


@virtual
async def test_a_quorum_that_answers_in_between_is_not_missing():
    """Times without a quorum do not add up when one answers in between that the lock is taken."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        held = await other.lock("a", ttl=60, extension=PLAIN).acquire()
        waiter = asyncio.create_task(w.manager.lock("a", quorum_timeout=3).acquire())
        for _ in range(5):
            await asyncio.sleep(1.5)
            silence(w)
            await asyncio.sleep(1.5)
            speak(w)
        await asyncio.sleep(1)
        await held.release()
        await (await waiter).release()


@virtual
async def test_all_calls_behind_a_task_give_up_in_their_time():
    """Only one task of a process asks the nodes; those behind it do not wait for their turn to find out."""
    async with world() as w:
        silence(w)
        began = sim().time()
        patient = asyncio.create_task(w.manager.lock("a").acquire())
        await asyncio.sleep(0.5)
        lock = w.manager.lock("a", quorum_timeout=2)
        ends = await asyncio.gather(*(in_task(lock.acquire) for _ in range(50)))
        for end in ends:
            assert isinstance(end.error, QuorumUnavailableError)
            assert 2.5 <= end.at - began <= 2.5 + TIMEOUT + 2 / 10 + EPSILON
        assert not patient.done()
        speak(w)
        await (await patient).release()


@virtual
async def test_behind_a_task_too_it_counts_from_the_last_answer_of_a_quorum():
    """A quorum that has answered after the call began is waited for that long, and no longer."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        held = await other.lock("a", ttl=60, extension=PLAIN).acquire()
        patient = asyncio.create_task(w.manager.lock("a").acquire())
        await asyncio.sleep(0.5)
        waiter = in_task(w.manager.lock("a", quorum_timeout=20).acquire)
        await asyncio.sleep(1)
        gone = sim().time()
        silence(w)
        end = await waiter
        assert isinstance(end.error, QuorumUnavailableError)
        assert gone + 20 - MAX_POLL - TIMEOUT <= end.at <= gone + 20 + TIMEOUT
        speak(w)
        await held.release()
        await (await patient).release()


@virtual
async def test_all_calls_that_come_at_once_give_up_at_once():
    """As many requests as there are: none of them waits for those before it."""
    async with world() as w:
        silence(w)
        began = sim().time()
        lock = w.manager.lock("a", quorum_timeout=1, blocking_timeout=60)
        ends = await asyncio.gather(*(in_task(lock.acquire) for _ in range(50)))
        assert {type(end.error) for end in ends} == {QuorumUnavailableError}
        assert max(end.at for end in ends) - began <= 1 + 2 * TIMEOUT + EPSILON


@virtual
async def test_a_lock_of_this_process_is_waited_for():
    """While a task of this process holds the lock, no quorum is missing; it is missed from then on."""
    async with world() as w:
        held = await w.manager.lock("a", ttl=30, extension=PLAIN).acquire()
        lock = w.manager.lock("a", quorum_timeout=1)
        waiters = [in_task(lock.acquire) for _ in range(3)]
        await asyncio.sleep(10)
        assert not any(waiter.done() for waiter in waiters)
        silence(w)
        gone = sim().time()
        released = asyncio.create_task(held.release())
        for end in await asyncio.gather(*waiters):
            assert isinstance(end.error, QuorumUnavailableError)
            assert gone + 1 <= end.at <= gone + 1 + 2 * TIMEOUT + EPSILON
        await released
        speak(w)


@virtual
async def test_the_first_use_connects_within_it():
    """A manager whose nodes cannot be reached ends the call in its time, too."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    for node in nodes:
        node.freeze()
    manager = make(nodes, connect_timeout=5.0)
    began = sim().time()
    with pytest.raises(QuorumUnavailableError):
        await manager.lock("a", quorum_timeout=0.5).acquire()
    assert sim().time() - began <= 0.5 + 2 * TIMEOUT + EPSILON
    await manager.aclose()
    for node in nodes:
        node.thaw()


@virtual
async def test_a_single_try_takes_no_longer_or_shorter():
    """`blocking=False` and `try_acquire` ask once, whatever the `quorum_timeout`."""
    async with world() as w:
        lease = await w.manager.lock("a", blocking=False, quorum_timeout=0).acquire()
        assert await w.manager.lock("a", quorum_timeout=5).try_acquire() is None
        await lease.release()
        silence(w)
        for quorum_timeout in (0, 5):
            began = sim().time()
            with pytest.raises(QuorumUnavailableError):
                await w.manager.lock("a", quorum_timeout=quorum_timeout).try_acquire()
            assert sim().time() - began <= TIMEOUT + EPSILON


@virtual
async def test_the_decorator_takes_it():
    """As every option of `lock`."""
    async with world() as w:
        silence(w)

        @w.manager.locked("a", quorum_timeout=1)
        async def work() -> None:
            pytest.fail("it runs without its lock")

        began = sim().time()
        with pytest.raises(QuorumUnavailableError):
            await work()
        assert sim().time() - began <= 1 + TIMEOUT + EPSILON


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), ("5", TypeError), (float("nan"), ValueError)])
def test_what_it_cannot_be(value: Any, error: type[Exception]) -> None:
    """Refused at the call, with its name and the value."""
    with pytest.raises(error, match=f"quorum_timeout.*{value}"):
        LockManager(["redis://a"]).lock("a", quorum_timeout=value)


@virtual
async def test_nothing_of_it_is_left():
    """A call that is let through, or cancelled, looks no more after the quorum."""
    async with world() as w:
        held = await w.manager.lock("a").acquire()
        lock = w.manager.lock("a", quorum_timeout=1)
        first, second = (asyncio.create_task(lock.acquire()) for _ in range(2))
        await asyncio.sleep(0.2)
        second.cancel()
        await asyncio.wait([second])
        await held.release()
        lease = await first
        await asyncio.sleep(TTL)
        lease.check()
        await lease.release()
