"""Waiting: deadlines, the queue of one process, what errors say, when it is tried again, deadlock (R13)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from aioredlock_ng import ConfigurationError, Lease, RetryPolicy, Vote
from aioredlock_ng.errors import LockLostError, LockTakenError, QuorumUnavailableError, WouldDeadlockError
from aioredlock_ng.events import Refused
from tests.unit.tasks import End, cycle, ending, in_task, sim, turns
from tests.unit.traces import Heard, count, drawn_backoffs, sent
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    ROUND_TRIP,
    TIMEOUT,
    TTL,
    World,
    conflict,
    each,
    opened,
    world,
)

EPSILON = 1e-6
SLOWER_NODES_GET = 0.01
"""Seconds for which a verdict waits for the last votes."""
A_WHILE = SLOWER_NODES_GET + 10 * LATENCY
MAX_POLL = 0.5
"""Seconds: no longer than this it is that a call that waits has not asked."""
MAX_CHANNELS = "aioredlock_ng._node.channels.MAX_CHANNELS"

T, Q = LockTakenError, QuorumUnavailableError


class Refusals(Heard):
    """A hook that knows when tries were refused."""

    @property
    def times(self) -> list[float]:
        """When they were."""
        return [when for when, event in self.told if isinstance(event, Refused)]

    @property
    def waits(self) -> list[float]:
        """The seconds between tries, but for the last one, which comes with the end of the time."""
        return [after - before for before, after in itertools.pairwise(self.times[:-1])]


async def timed(run: Callable[[], Awaitable[object]]) -> tuple[End, float]:
    """Run something in a task of its own; return how it ended and after how many seconds."""
    began = sim().time()
    end = await in_task(run)
    return end, end.at - began


def wants(w: World, *names: str, patience: float | None = None) -> asyncio.Task[End]:
    """Have a task wait for a lock."""
    return in_task(w.manager.lock(*names or ("a",), blocking_timeout=patience).acquire)


def asked(w: World) -> list[int]:
    """Return how many commands each node has executed."""
    return [len(node.executed) for node in w.nodes]


def prepare(w: World, states: str) -> None:
    """Put the nodes into states: taken, for ever, frozen, dead, slow, taken and slow; the rest stay free."""
    for index, state in enumerate(states[: len(w.nodes)]):
        node = w.nodes[index]
        if state in "tTp":
            w.occupy("a", None if state == "p" else 100.0 * (index + 1), index)
        if state in "sT":
            node.latency = 0.04
        if state == "f":
            node.freeze()
        if state == "d":
            node.crash()


def silence(w: World) -> None:
    """Have a majority answer no more."""
    each(w.nodes[1:]).freeze()


def speak(w: World) -> None:
    """Have all answer again."""
    each(w.nodes).thaw()


# -- the deadline ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "blocking", "try"])
async def test_zero_tries_exactly_once(how):
    """blocking_timeout=0, blocking=False and try_acquire() ask every node once and wait for nothing else."""
    async with world() as w:
        w.occupy("a", 5.0)
        if how == "try":
            assert await w.manager.lock("a").try_acquire() is None
        else:
            options = {"blocking_timeout": 0} if how == "timeout" else {"blocking": False}
            end, seconds = await timed(w.manager.lock("a", **options).acquire)
            assert isinstance(end.error, LockTakenError)
            assert seconds <= 2 * ROUND_TRIP + EPSILON
        assert [count(node, "acquire") for node in w.nodes] == [1] * 3


@pytest.mark.heavy
@pytest.mark.parametrize("states", ["tttt", "ffff", "dddd", "fff", "ddd", "ttf", "ttd", "tts", "TTT", "tf"])
@pytest.mark.parametrize("number", [3, 5])
async def test_the_wait_ends_at_most_one_node_timeout_late(number, states):
    """Whatever the nodes do, acquire ends between its blocking_timeout and one node_timeout later."""
    for patience in (0, 0.05, 0.5, 3.0):
        refusals = Refusals()
        async with world(number, hooks=[refusals]) as w:
            prepare(w, states if len(states) < 4 else states[0] * number)
            for _ in range(2):  # the second time the frozen nodes are known to be down
                end, seconds = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
                if end.error is None:
                    assert number == 5
                    break
                assert isinstance(end.error, (LockTakenError, QuorumUnavailableError))
                assert patience - EPSILON <= seconds <= patience + TIMEOUT + EPSILON
                assert refusals.times[-1] == end.at, "no sleep after the last try"
                await asyncio.sleep(5)


@pytest.mark.parametrize(("fencing", "within"), [(False, 1.0), (True, 3.0)])
async def test_none_outlives_a_lost_quorum(fencing, within):
    """Without a blocking_timeout acquire goes on while the nodes are down, and wins when they are back;
    with fences two seconds later, when they can follow each other's floors (R10, R12).
    """
    async with world(fencing=fencing) as w:
        each(w.nodes).crash()
        task = wants(w)
        await asyncio.sleep(60)
        each(w.nodes).restart()
        await asyncio.sleep(within)
        assert task.done(), "soon after the nodes' return"
        assert (await task).error is None


@pytest.mark.parametrize("stall", [0.25, 5.0])
async def test_a_stall_past_the_time_keeps_the_last_verdict(stall: float) -> None:
    """A task that finds the time gone after a stall hears what the nodes said last: that the lock is held."""
    async with world(retry=RetryPolicy(base=100.0, cap=100.0)) as w:  # the stall is before the next try
        w.occupy("a", None)
        waiter = wants(w, patience=0.1)
        await asyncio.sleep(0.05)
        sim().advance(stall)
        stalled = sim().time()
        end = await waiter
        assert isinstance(end.error, LockTakenError)
        assert [vote.vote for vote in end.error.votes] == [Vote.REFUSED] * 3
        assert end.at == pytest.approx(stalled), "the time was up, and it asked once more"


# -- patience for a missing quorum --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quorum_timeout", "blocking_timeout", "seconds"),
    [(0, None, 0), (0.03, 5, 0.03), (2, 3600, 2), (timedelta(seconds=1), None, 1), (9, 1, 1)],
    ids=str,
)
async def test_a_missing_quorum_ends_the_wait(quorum_timeout, blocking_timeout, seconds):
    """The call ends when the earlier time is over, at most a `node_timeout` later, and says why."""
    async with world() as w:
        silence(w)
        lock = w.manager.lock("a", blocking_timeout=blocking_timeout, quorum_timeout=quorum_timeout)
        end, took = await timed(lock.acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        assert len(end.error.votes) == 3
        assert seconds <= took <= seconds + TIMEOUT + A_WHILE


@pytest.mark.parametrize(("behind", "seconds"), [(False, 3), (True, 20)], ids=["alone", "behind a task"])
async def test_it_counts_from_the_last_answer_of_a_quorum(behind, seconds):
    """A quorum that goes missing while a lock is waited for is waited for that long, and no longer."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        held = await other.lock("a", ttl=60, extension=PLAIN).acquire()
        patient = [wants(w)] if behind else []
        await asyncio.sleep(0.5)
        waiter = in_task(w.manager.lock("a", quorum_timeout=seconds).acquire)
        await asyncio.sleep(1 if behind else 10)
        gone = sim().time()
        silence(w)
        end = await waiter
        assert isinstance(end.error, QuorumUnavailableError)
        assert gone + seconds - MAX_POLL - TIMEOUT <= end.at <= gone + seconds + TIMEOUT
        speak(w)
        await held.release()
        for task in patient:
            assert (await task).error is None


# -- a lease of this process -------------------------------------------------------------------------


async def test_the_gate_opens_at_loss_by_the_clock():
    """A body that goes on after its loss keeps no other task from the lock once the keys are gone."""
    async with world() as w:

        async def stubborn() -> None:
            async with w.manager.lock("a", extension=PLAIN, on_lost="raise"):
                await asyncio.sleep(10 * TTL)

        first = in_task(stubborn)
        await asyncio.sleep(0.1)
        second, seconds = await timed(w.manager.lock("a", blocking_timeout=2 * TTL).acquire)
        assert second.error is None
        assert TTL - 0.2 < seconds < TTL + 0.2
        assert isinstance((await first).error, LockLostError)


# -- the queue of one process ------------------------------------------------------------------------


async def test_tasks_of_one_process_get_the_lock_in_the_order_of_their_calls():
    """First come, first served, also when tasks in between give up."""
    async with world() as w:
        order: list[int] = []

        async def body(number: int) -> None:
            async with w.manager.lock("a"):
                order.append(number)
                await asyncio.sleep(0.01)

        async with w.manager.lock("a"):
            tasks = [in_task(lambda number=number: body(number)) for number in range(50)]
            await asyncio.sleep(0.1)
            assert w.manager.statistics().waiting == 50
            for task in tasks[::7]:
                task.cancel()
        await asyncio.gather(*tasks)
        assert order == [number for number in range(50) if number % 7]
        assert w.manager.statistics().waiting == 0


async def test_one_contender_per_process_and_name_reaches_the_nodes():
    """Twenty tasks that wait for a stranger's lock send no more than one of them would."""
    sets = []
    for tasks in (1, 20):
        async with world() as w:
            w.occupy("a", 1000.0)
            await asyncio.gather(*(wants(w, patience=3) for _ in range(tasks)))
            sets.append(count(w.nodes[0], "acquire"))
    alone, together = sets
    assert alone > 5
    assert together <= alone + 2


async def test_locks_over_several_names_in_opposite_orders():
    """Two, and many, locks over the same names in any order never wait for each other for ever."""
    async with world() as w:
        entered = 0

        async def body(names: tuple[str, ...]) -> None:
            nonlocal entered
            async with w.manager.lock(*names) as lease:
                assert lease.names == tuple(sorted(set(names)))
                entered += 1
                await asyncio.sleep(0.01)

        orders = [names for size in (1, 2, 3, 4) for names in itertools.permutations("abcd", size)]
        ended, waiting = await asyncio.wait(
            [in_task(lambda names=names: body(names)) for names in orders], timeout=1000
        )
        assert not waiting
        assert [task.result().error for task in ended] == [None] * len(orders)
        assert entered == len(orders)
        assert w.keys == [()] * 3


# -- running out of time inside the gate ------------------------------------------------------------


@pytest.mark.parametrize("states", ["t--", "ff"])
@pytest.mark.parametrize("patience", [0, 0.3])
async def test_the_queue_reports_the_last_verdict_of_its_head(states, patience):
    """A task that times out behind a contender gets that one's last answer: taken, or silent."""
    async with world() as w:
        if states == "ff":
            prepare(w, states)
        else:
            w.occupy("a", 100.0)
        head = wants(w, patience=5)
        await asyncio.sleep(0.2)
        end, seconds = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
        assert seconds <= patience + TIMEOUT + EPSILON
        if states == "ff":
            assert isinstance(end.error, QuorumUnavailableError)
            assert [vote.vote for vote in end.error.votes][:2] == [Vote.SILENT] * 2
        else:
            assert isinstance(end.error, LockTakenError)
            assert [vote.vote for vote in end.error.votes] == [Vote.REFUSED] * 3
            assert end.error.retry_after == pytest.approx(99.5, abs=0.6)
            assert seconds == pytest.approx(patience)
        await head


async def test_a_lease_that_is_over_is_no_answer_to_a_single_try():
    """The next task of the process is asking, and no node has answered it: nothing is known to be held."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        following = wants(w, patience=1.0)
        await turns(2)
        prepare(w, "fff")
        releasing = in_task(lease.release)
        await turns(2)
        assert isinstance((await wants(w, patience=0)).error, QuorumUnavailableError)
        speak(w)
        assert (await following).error is None
        await releasing


# -- taken, or no quorum -----------------------------------------------------------------------------

# t: a stranger's key for 100, 200, 300 … s by index; p: one without expiry; f: frozen; d: dead; -: free
VERDICTS = (
    "ttt=200 tt-=100 t--=won td-=100 t-d=100 tdt=300 dtt=300 tdd=Q -dd=Q ddd=Q fff=Q tf-=100 tff=Q d--=won "
    "f--=won ppp=T pp-=T pt-=200 ttttt=300 ttt--=100 tt---=won ttd--=100 ttdd-=200 ttddd=Q --ddd=Q --dd-=won "
    "tt=200 t-=100 -d=Q t=100 d=Q"
)


@pytest.mark.heavy
@pytest.mark.parametrize("case", VERDICTS.split())
async def test_taken_and_no_quorum_are_told_apart(case):
    """Q answers and no majority: taken, until enough keys end; fewer answers: no quorum; every vote shown."""
    states, _, verdict = case.partition("=")
    async with world(len(states)) as w:
        prepare(w, states)
        await asyncio.sleep(0.01)
        error = (await wants(w, patience=0)).error
        if verdict == "won":
            assert error is None
            return
        assert type(error) is (Q if verdict == "Q" else T)
        assert [vote.node for vote in error.votes] == [node.name for node in w.nodes]
        expected = {"t": Vote.REFUSED, "p": Vote.REFUSED, "-": Vote.GRANTED}
        for state, vote in zip(
            states, error.votes, strict=True
        ):  # or not known still when the verdict was (R4)
            early = verdict == "Q" and vote.reason == "no answer yet"
            assert early or vote.vote is expected.get(state, Vote.SILENT)
            assert vote.reason or vote.vote is not Vote.SILENT
        if verdict != "Q":
            # A silent node takes all the time of a single try, so that none is left to ask for PTTLs.
            after = float(verdict) if verdict != "T" else None
            unasked = "f" in states and error.retry_after is None
            assert unasked or error.retry_after == pytest.approx(after, abs=0.2)
        await asyncio.sleep(ROUND_TRIP)
        assert all(keys == () for keys, state in zip(w.keys, states, strict=True) if state == "-")


@pytest.mark.parametrize("turn", range(4))
async def test_no_lock_is_taken_once_the_nodes_are_found_to_be_no_quorum(turn):
    """Though a majority had granted it just before (A4)."""
    async with world() as w:
        task = asyncio.create_task(w.manager.lock("a", blocking_timeout=0).acquire())
        await asyncio.sleep(ROUND_TRIP)
        await turns(turn)
        had = task.done()
        conflict(w.manager)
        if had:
            await task.result().release()
        else:
            with pytest.raises((ConfigurationError, QuorumUnavailableError)):
                await task
        conflict(w.manager, None)
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


@pytest.mark.parametrize(("wrong", "fails"), [((0, 1), True), ((0, 1, 2), True), ((0,), False)])
async def test_a_wrong_type_fails_at_once_if_it_costs_the_quorum(wrong, fails):
    """Something that is no lock under the name, on a majority, is no matter of waiting; on one node it is."""
    async with world() as w:
        for index in wrong:
            w.nodes[index].set(b"redlock:a", None, 1000.0)
        end, seconds = await timed(w.manager.lock("a", blocking_timeout=5).acquire)
        assert type(end.error) is (ConfigurationError if fails else type(None))
        assert seconds < 0.1


# -- when it is tried again --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
async def test_the_expiry_of_the_keys_ends_the_wait(seed):
    """With long back-offs a waiter still comes within a first back-off of the moment the keys expire."""
    async with world() as w, opened(w.nodes, seed=seed, retry=RetryPolicy(base=0.02, cap=60)) as other:
        w.occupy("a", 7.0)
        end, seconds = await timed(other.lock("a").acquire)
        assert end.error is None
        assert 7.0 <= seconds <= 7.05


async def test_every_try_has_an_owner_of_its_own():
    """No owner value is used for two attempts, and every attempt is released on every node."""
    async with world() as w:
        w.occupy("a", 1000.0)
        await wants(w, patience=10)
        for node in w.nodes:
            owners = [one.owner for one in sent(node) if one.kind == "acquire"]
            assert len(set(owners)) == len(owners) > 10
            assert [one.owner for one in sent(node) if one.kind == "release"] == owners


@pytest.mark.parametrize("why", ["in vain", "no channel", "one channel for a writer"])
async def test_the_waits_of_a_poll_grow_from_try_to_try(why, monkeypatch):
    """Each is drawn from the interval of its own number, beginning with the shortest (R13).

    A writer waits for readers too, of which another channel tells: both must stand (R22).
    """
    if why != "in vain":
        monkeypatch.setattr(MAX_CHANNELS, int(why != "no channel"))
    policy = RetryPolicy(base=0.01, cap=0.2)
    drawn = drawn_backoffs(monkeypatch, policy)
    async with world() as w, w.process(retry=policy) as other, contextlib.AsyncExitStack() as stack:
        if why == "in vain":
            each(w.nodes[1:]).refuse("OOM command not allowed")
        elif why == "no channel":
            await stack.enter_async_context(w.manager.lock("a"))
        else:
            await stack.enter_async_context(w.manager.rwlock("a").read())
        lock = other.rwlock("a").write() if "writer" in why else other.lock("a")
        task = in_task(lock.acquire)
        await asyncio.sleep(1.0)
        assert drawn == list(range(len(drawn)))
        assert len(drawn) > 5
        task.cancel()
        await task


NAMES = ("a", "b", "c")


@pytest.mark.parametrize("others", [False, True], ids=["the rest is free", "the rest is held by others"])
@pytest.mark.parametrize("patience", [None, 5.0])
@pytest.mark.parametrize("own", NAMES)
async def test_any_name_of_several_that_the_task_holds(own, patience, others):
    """Whichever of the names is the task's own: the error comes at once, and no gate is left shut."""
    async with world() as w:
        strangers: list[Lease] = []
        if others:
            strangers += [await w.manager.lock(name).acquire() for name in NAMES if name != own]
        async with w.manager.lock(own) as lease:
            asked = [len(node.executed) for node in w.nodes]
            began = sim().time()
            for names in (NAMES, (own,)):
                with pytest.raises(WouldDeadlockError, match=f"'{own}'") as caught:
                    await w.manager.lock(*names, blocking_timeout=patience).acquire()
                assert caught.value.names == names
            end = await ending(w.manager.lock(own, blocking_timeout=0).acquire)
            assert isinstance(end.error, LockTakenError), "a single try does not wait"
            assert await w.manager.lock(own).try_acquire() is None
            assert sim().time() == began
            assert [len(node.executed) for node in w.nodes] == asked, "no node is asked"
            lease.check()
        for stranger in strangers:
            await stranger.release()
        await cycle(w.manager.lock(*NAMES, blocking_timeout=1))


# -- what may be a deadlock, and need not be one ---------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("kind", ["lock", "write", "two names"])
async def test_a_task_that_waits_for_its_own_child_is_warned_of(kind, caplog):
    """Once, after two seconds: a child that wants the same lock waits for the block, and the block for it."""
    async with world() as w:
        lock = {
            "lock": w.manager.lock("a"),
            "write": w.manager.rwlock("a").write(),
            "two names": w.manager.lock("a", "b"),
        }[kind]
        async with lock:
            wanted = [asyncio.create_task(w.manager.lock("a", blocking_timeout=5).acquire()) for _ in "12"]
            await asyncio.sleep(1.9)
            assert not warnings(caplog)
            for error in await asyncio.gather(*wanted, return_exceptions=True):
                assert type(error) is LockTakenError
        (line,) = warnings(caplog)
        assert line.startswith("a task waits for lock 'a', which it or a task that started it has acquired: ")
