"""Waiting: the deadline, the queue of one process, what the error says, when it is tried again (R13)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockError,
    LockLostError,
    LockTakenError,
    QuorumUnavailableError,
    RetryPolicy,
    Vote,
    WouldDeadlockError,
)
from aioredlock_ng._acquire.attempt import STRAGGLERS
from aioredlock_ng._local.handoff import YIELD
from aioredlock_ng._node import channels
from aioredlock_ng.events import Refused
from tests.unit.worlds import (
    ANOTHER,
    LATENCY,
    PLAIN,
    TIMEOUT,
    TTL,
    End,
    World,
    count,
    deadline,
    ending,
    in_task,
    make,
    opened,
    sent,
    sim,
    turns,
    until,
    virtual,
    world,
)

ROUND_TRIP = 2 * LATENCY
EPSILON = 1e-6


class Refusals:
    """A hook that writes down when tries were refused."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.events: list[Refused] = []

    def on_refused(self, event: Refused) -> None:
        """Write it down."""
        self.times.append(sim().time())
        self.events.append(event)


async def timed(run: Callable[[], Awaitable[object]]) -> tuple[End, float]:
    """Run something in a task of its own; return how it ended and after how many seconds."""
    began = sim().time()
    end = await in_task(run)
    return end, end.at - began


# -- the deadline ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "blocking", "try"])
def test_zero_tries_exactly_once(how):
    """blocking_timeout=0, blocking=False and try_acquire() ask every node once and wait for nothing else."""

    async def main() -> None:
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

    virtual(main)()


@virtual
async def test_zero_gets_a_free_lock():
    """A single try of a free lock is a win, for a block as for try_acquire()."""
    async with world() as w:
        async with w.manager.lock("a", blocking_timeout=0) as lease:
            assert lease.held
        lease = await w.manager.lock("a").try_acquire()
        assert lease is not None
        await lease.release()


@virtual
async def test_try_acquire_without_a_quorum():
    """try_acquire() is None only when another client holds the lock; without a quorum that is unknown."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()
        end, seconds = await timed(w.manager.lock("a").try_acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        assert seconds <= TIMEOUT + EPSILON


WORLDS = {
    "taken": "tttt",
    "silent": "ffff",
    "dead": "dddd",
    "mostly silent": "fff",
    "mostly dead": "ddd",
    "taken, one silent": "ttf",
    "taken, one dead": "ttd",
    "taken, one slow": "tts",
    "slow": "sss",
    "taken and slow": "TTT",
    "one taken, one silent, one free": "tf",
}


def prepare(w: World, states: str) -> None:
    """Put the nodes into states: taken, frozen, dead, slow, taken and slow; the rest stays free."""
    for index, state in enumerate(states[: len(w.nodes)]):
        node = w.nodes[index]
        if state in "tT":
            w.occupy("a", 1000.0, index)
        if state in "sT":
            node.latency = 0.04
        if state == "f":
            node.freeze()
        if state == "d":
            node.crash()


@pytest.mark.heavy
@pytest.mark.parametrize("patience", [0, 0.05, 0.5, 3.0])
@pytest.mark.parametrize("states", [states for name, states in WORLDS.items() if name != "slow"])
@pytest.mark.parametrize("number", [3, 5])
def test_the_wait_ends_at_most_one_node_timeout_late(number, states, patience):
    """Whatever the nodes do, acquire ends between its blocking_timeout and one node_timeout later."""

    async def main() -> None:
        refusals = Refusals()
        async with world(number, hooks=[refusals]) as w:
            prepare(w, states if len(states) < 4 else states[0] * number)
            for _ in range(2):  # the second time the frozen nodes are known to be down
                end, seconds = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
                if end.error is None:
                    assert number == 5
                    return
                assert isinstance(end.error, (LockTakenError, QuorumUnavailableError))
                assert patience - EPSILON <= seconds <= patience + TIMEOUT + EPSILON
                assert refusals.times[-1] == end.at, "no sleep after the last try"
                await asyncio.sleep(5)

    virtual(main)()


@virtual
async def test_the_last_try_comes_when_the_time_is_up():
    """A lock that becomes free just before the end of blocking_timeout is still won."""
    async with world(retry=RetryPolicy(base=10, cap=10)) as w:
        for number in range(20):
            name = f"lock-{number}"
            w.occupy(name, None)
            sim().call_later(0.99, w.vacate, name)
            end, seconds = await timed(w.manager.lock(name, blocking_timeout=1).acquire)
            assert end.error is None, number
            assert seconds <= 1 + TIMEOUT + EPSILON
            await asyncio.sleep(0)


@pytest.mark.heavy
@virtual
async def test_none_waits_for_ever():
    """Without a blocking_timeout acquire waits as long as it takes."""
    async with world() as w, w.process() as other:
        holder = await other.lock("a", extension=PLAIN, ttl=3600).acquire()
        task = in_task(w.manager.lock("a").acquire)
        await asyncio.sleep(300)
        assert not task.done()
        await holder.release()
        await asyncio.sleep(0.5 + 3 * ROUND_TRIP)
        assert task.done()
        assert (await task).error is None


@pytest.mark.parametrize(("fencing", "within"), [(False, 1.0), (True, 3.0)])
def test_none_outlives_a_lost_quorum(fencing, within):
    """Without a blocking_timeout acquire goes on while the nodes are down, and wins when they are back;
    with fences two seconds later, when they can follow each other's floors (R10, R12).
    """

    async def main() -> None:
        async with world(fencing=fencing) as w:
            for node in w.nodes:
                node.crash()
            task = in_task(w.manager.lock("a").acquire)
            await asyncio.sleep(60)
            for node in w.nodes:
                node.restart()
            await asyncio.sleep(within)
            assert task.done(), "soon after the nodes' return"
            assert (await task).error is None

    virtual(main)()


@pytest.mark.parametrize("patience", [0.5, 2.0])
def test_the_time_to_start_is_part_of_the_wait(patience):
    """At a manager's first use, with nodes that do not answer, blocking_timeout is the deadline as ever."""

    async def main() -> None:
        async with world() as w:
            for node in w.nodes:
                node.freeze()
            lazy = make(w.nodes, seed=3)
            try:
                end, seconds = await timed(lazy.lock("a", blocking_timeout=patience).acquire)
                assert isinstance(end.error, QuorumUnavailableError)
                assert patience - EPSILON <= seconds <= patience + TIMEOUT + EPSILON
            finally:
                await lazy.aclose()

    virtual(main)()


# -- a lease of this process -------------------------------------------------------------------------


@virtual
async def test_zero_asks_no_node_while_a_lease_of_this_process_lives():
    """A single try of a name that this process holds is answered at once and without I/O."""
    async with world() as w, w.manager.lock("a") as lease:
        await asyncio.sleep(1)
        before = [len(node.executed) for node in w.nodes]
        end, seconds = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, LockTakenError)
        assert end.error.retry_after == pytest.approx(lease.remaining)
        assert seconds == 0
        assert await w.manager.lock("a", "b").try_acquire() is None
        await asyncio.sleep(0.1)
        assert [len(node.executed) for node in w.nodes] == before
        async with w.manager.lock("b", blocking_timeout=0):
            pass


@virtual
async def test_zero_asks_the_nodes_again_once_the_lease_is_over():
    """After a release, and after a loss, a single try reaches the nodes."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        await lease.release()
        lease = await w.manager.lock("a", extension=PLAIN, blocking_timeout=0).acquire()
        await lease.lost.wait()
        assert await w.manager.lock("a").try_acquire() is None
        assert [count(node, "acquire") for node in w.nodes] == [3] * 3
        await lease.release()


@virtual
async def test_waiting_behind_a_lease_of_this_process_costs_no_io():
    """Tasks that wait for a name which this process holds do not reach the nodes; at the end: taken."""
    async with world() as w:
        async with w.manager.lock("a", extension=PLAIN) as lease:
            before = [len(node.executed) for node in w.nodes]
            ends = await asyncio.gather(
                *(timed(w.manager.lock("a", blocking_timeout=0.5).acquire) for _ in range(20))
            )
            for end, seconds in ends:
                assert isinstance(end.error, LockTakenError)
                assert end.error.retry_after == pytest.approx(lease.remaining)
                assert seconds == pytest.approx(0.5)
            assert [len(node.executed) for node in w.nodes] == before
        assert w.manager.statistics().waiting == 0


@virtual
async def test_the_gate_opens_at_release():
    """The next in line has the lock a round trip after the release, and the yield of its process."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        task = in_task(w.manager.lock("a").acquire)
        await asyncio.sleep(5)
        began = sim().time()
        release = asyncio.create_task(lease.release())
        end = await task
        assert end.error is None
        assert end.at - began <= YIELD + ROUND_TRIP + EPSILON
        await release


@virtual
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
        end = await first
        assert isinstance(end.error, LockLostError)


@virtual
async def test_the_gate_opens_at_loss_by_refusal():
    """A lease that a majority refused lets the next of its process try, while its body cleans up."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        waiting = asyncio.create_task(w.manager.lock("a").acquire())
        w.vacate("a")
        await lease.lost.wait()
        await asyncio.sleep(ROUND_TRIP + EPSILON)
        assert waiting.done()
        report = await lease.release()
        assert {node.outcome.value for node in report.nodes} == {"was not held"}
        assert None not in w.holders("a")
        await waiting.result().release()


# -- the queue of one process ------------------------------------------------------------------------


@virtual
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


@pytest.mark.parametrize("turn", range(8))
def test_a_newcomer_does_not_overtake_the_queue(turn):
    """A task that asks around the turn in which the lock is handed on stands behind those that waited."""

    async def main() -> None:
        async with world() as w:
            order: list[str] = []

            async def body(name: str) -> None:
                async with w.manager.lock("a"):
                    order.append(name)

            lease = await w.manager.lock("a").acquire()
            tasks = [in_task(lambda: body("first")), in_task(lambda: body("second"))]
            await asyncio.sleep(0.1)
            release = asyncio.create_task(lease.release())
            await turns(turn)
            tasks.append(in_task(lambda: body("newcomer")))
            await asyncio.gather(release, *tasks)
            assert order == ["first", "second", "newcomer"]

    virtual(main)()


@pytest.mark.parametrize("turn", range(8))
def test_a_turn_that_comes_with_a_cancellation_is_handed_on(turn):
    """The next in line is cancelled around the turn in which its time comes: the one behind it gets in."""

    async def main() -> None:
        async with world() as w:
            lease = await w.manager.lock("a").acquire()
            first, second = (in_task(w.manager.lock("a", blocking_timeout=5).acquire) for _ in range(2))
            await asyncio.sleep(0.1)
            release = asyncio.create_task(lease.release())
            await turns(turn)
            first.cancel()
            await release
            assert isinstance((await first).error, asyncio.CancelledError)
            end = await second
            assert end.error is None
            assert end.at < 1000.3
            assert w.keys == [()] * 3

    virtual(main)()


@virtual
async def test_one_contender_per_process_and_name_reaches_the_nodes():
    """Twenty tasks that wait for a stranger's lock send no more than one of them would."""
    sets = []
    for tasks in (1, 20):
        async with world() as w:
            w.occupy("a", 1000.0)
            await asyncio.gather(
                *(in_task(w.manager.lock("a", blocking_timeout=3).acquire) for _ in range(tasks))
            )
            sets.append(count(w.nodes[0], "acquire"))
    alone, together = sets
    assert alone > 5
    assert together <= alone + 2


@virtual
async def test_contenders_for_different_names_do_not_wait_for_each_other():
    """The queue is per name."""
    async with world() as w:
        w.occupy("a", 1000.0)
        waiting = in_task(w.manager.lock("a", blocking_timeout=5).acquire)
        await asyncio.sleep(0.1)
        end, seconds = await timed(w.manager.lock("b").acquire)
        assert end.error is None
        assert seconds == pytest.approx(ROUND_TRIP)
        await waiting


@virtual
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


@virtual
async def test_a_lock_over_several_names_waits_for_all_of_them():
    """It gets in when the last of its names is free, and holds up none that it does not need."""
    async with world() as w:
        first, second = await w.manager.lock("a").acquire(), await w.manager.lock("b").acquire()
        both = in_task(w.manager.lock("b", "a").acquire)
        await asyncio.sleep(1)
        async with w.manager.lock("c"):
            pass
        await first.release()
        await asyncio.sleep(1)
        assert not both.done()
        await second.release()
        assert (await both).error is None


@virtual
async def test_a_task_that_gives_up_at_one_of_several_gates_frees_the_others():
    """A lock over a, b, c that runs out of time at b has let go of a."""
    async with world() as w, w.manager.lock("b"):
        end, seconds = await timed(w.manager.lock("a", "b", "c", blocking_timeout=0.5).acquire)
        assert isinstance(end.error, LockTakenError)
        assert end.error.names == ("a", "b", "c")
        assert seconds == pytest.approx(0.5)
        async with w.manager.lock("a", "c", blocking_timeout=0):
            pass


# -- running out of time inside the gate ------------------------------------------------------------


@virtual
async def test_the_queue_reports_the_last_verdict_of_its_head():
    """A task that times out behind a contender learns what the nodes told that one: taken, and until when."""
    async with world() as w:
        w.occupy("a", 100.0)
        head = in_task(w.manager.lock("a", blocking_timeout=5).acquire)
        await asyncio.sleep(0.2)
        for patience in (0, 0.3):
            end, seconds = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
            assert isinstance(end.error, LockTakenError)
            assert [vote.vote for vote in end.error.votes] == [Vote.REFUSED] * 3
            assert end.error.retry_after == pytest.approx(99.5, abs=0.6)
            assert seconds == pytest.approx(patience)
        await head


@pytest.mark.heavy
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("quarters", range(1, 12))
def test_the_queue_reports_a_holder_at_any_moment_of_the_first_try(number, quarters):
    """A task that times out while its head is being refused, and told why, is told that the lock is taken."""

    async def main() -> None:
        async with world(number) as w:
            w.occupy("a", 100.0)
            head = in_task(w.manager.lock("a", blocking_timeout=1).acquire)
            await turns(2)
            patience = quarters * ROUND_TRIP / 4
            end, _ = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
            assert isinstance(end.error, LockTakenError)
            await head

    virtual(main)()


@virtual
async def test_the_queue_reports_a_silent_quorum_as_such():
    """A task that times out behind an unheard contender gets QuorumUnavailableError with the reasons."""
    async with world() as w:
        for node in w.nodes[:2]:
            node.freeze()
        head = in_task(w.manager.lock("a", blocking_timeout=5).acquire)
        await asyncio.sleep(0.2)
        for patience in (0, 0.3):
            end, _ = await timed(w.manager.lock("a", blocking_timeout=patience).acquire)
            assert isinstance(end.error, QuorumUnavailableError)
            assert [vote.vote for vote in end.error.votes][:2] == [Vote.SILENT] * 2
        await head


@pytest.mark.parametrize("state", ["taken", "silent", "dead", "free"])
def test_single_tries_at_the_same_moment_agree(state):
    """Ten tries at once: one asks the nodes, and the others report what it was told, in the same time."""

    async def main() -> None:
        async with world() as w:
            prepare(w, WORLDS.get(state, ""))
            results = await asyncio.gather(
                *(timed(w.manager.lock("a", blocking_timeout=0).acquire) for _ in range(10))
            )
            kinds = {type(end.error) for end, _ in results}
            if state == "free":
                assert [end.error is None for end, _ in results] == [True] + [False] * 9
                assert kinds == {type(None), LockTakenError}
            else:
                assert kinds == {LockTakenError if state == "taken" else QuorumUnavailableError}
                for end, _ in results:
                    assert isinstance(end.error, LockError)
                    assert len(end.error.votes) == 3
            assert all(seconds <= TIMEOUT + EPSILON for _, seconds in results)
            if state in ("taken", "free"):
                assert [count(node, "acquire") for node in w.nodes] == [1] * 3

    virtual(main)()


@pytest.mark.parametrize("patience", [0, 0.05])
def test_waiters_behind_a_head_that_gives_up(patience):
    """The head's last verdict is known to those whose time is up with its own, however they are ordered."""

    async def main() -> None:
        async with world() as w:
            for node in w.nodes:
                node.freeze()
            head = in_task(w.manager.lock("a", blocking_timeout=patience).acquire)
            await turns(2)
            behind = [in_task(w.manager.lock("a", blocking_timeout=p).acquire) for p in (0, 0.1, 0.05)]
            ends = await asyncio.gather(head, *behind)
            assert isinstance(ends[0].error, QuorumUnavailableError)
            assert isinstance(ends[1].error, QuorumUnavailableError)
            assert isinstance(ends[2].error, QuorumUnavailableError)

    virtual(main)()


@virtual
async def test_a_single_try_is_told_with_the_verdict_on_the_task_before_it():
    """It waits for that answer of the nodes, and not until its own time is up."""
    async with world() as w:
        w.occupy("a", TTL)
        began = sim().time()
        head = in_task(w.manager.lock("a", blocking_timeout=1.0).acquire)
        await turns(1)
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, LockTakenError)
        assert end.at - began < TIMEOUT / 2
        assert isinstance((await head).error, LockTakenError)


@virtual
async def test_a_lease_that_is_over_is_no_answer_to_a_single_try():
    """The next task of the process is asking, and no node has answered it: nothing is known to be held."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        following = in_task(w.manager.lock("a", blocking_timeout=1.0).acquire)
        await turns(2)
        for node in w.nodes:
            node.freeze()
        releasing = in_task(lease.release)
        await turns(2)
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        for node in w.nodes:
            node.thaw()
        assert (await following).error is None
        await releasing


@virtual
async def test_a_single_try_behind_a_cancelled_head_is_in_time():
    """A try whose turn comes late in its time ends within one node_timeout of its call all the same."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()
        head = in_task(w.manager.lock("a", blocking_timeout=5).acquire)
        await asyncio.sleep(0.001)
        task = asyncio.create_task(timed(w.manager.lock("a", blocking_timeout=0).acquire))
        await asyncio.sleep(0.09)
        head.cancel()
        end, seconds = await task
        assert isinstance(end.error, QuorumUnavailableError)
        assert seconds <= TIMEOUT + EPSILON


@virtual
async def test_a_single_try_of_several_names_is_in_time():
    """Contenders at each of its gates do not add up: one node_timeout in all."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()

        async def contend(name: str, begin: float) -> None:
            await asyncio.sleep(begin)
            async with asyncio.timeout(0.09):
                await w.manager.lock(name, blocking_timeout=5).acquire()

        heads = [in_task(lambda n=name, b=begin: contend(n, b)) for name, begin in (("a", 0), ("b", 0.06))]
        await asyncio.sleep(0.001)
        _, seconds = await timed(w.manager.lock("a", "b", blocking_timeout=0).acquire)
        assert seconds <= TIMEOUT + EPSILON
        await asyncio.gather(*heads)


# -- taken, or no quorum -----------------------------------------------------------------------------

T, Q = LockTakenError, QuorumUnavailableError
# t: a stranger's key for 100, 200, 300 … s by index; p: one without expiry; f: frozen; d: dead; -: free
VERDICTS: list[tuple[str, type[LockError] | None, float | None]] = [
    ("ttt", T, 200.0),
    ("tt-", T, 100.0),
    ("t--", None, None),
    ("td-", T, 100.0),
    ("t-d", T, 100.0),
    ("tdt", T, 300.0),
    ("dtt", T, 300.0),
    ("tdd", Q, None),
    ("-dd", Q, None),
    ("ddd", Q, None),
    ("fff", Q, None),
    ("tf-", T, 100.0),
    ("tff", Q, None),
    ("d--", None, None),
    ("f--", None, None),
    ("ppp", T, None),
    ("pp-", T, None),
    ("pt-", T, 200.0),
    ("ttttt", T, 300.0),
    ("ttt--", T, 100.0),
    ("tt---", None, None),
    ("ttd--", T, 100.0),
    ("ttdd-", T, 200.0),
    ("ttddd", Q, None),
    ("--ddd", Q, None),
    ("--dd-", None, None),
    ("tt", T, 200.0),
    ("t-", T, 100.0),
    ("-d", Q, None),
    ("t", T, 100.0),
    ("d", Q, None),
]


def check_votes(states: str, error: LockError) -> None:
    """Every node's vote is what its state says, or was not known yet when the verdict was (R4)."""
    expected = {"t": Vote.REFUSED, "p": Vote.REFUSED, "-": Vote.GRANTED}
    for state, vote in zip(states, error.votes, strict=True):
        early = isinstance(error, QuorumUnavailableError) and vote.reason == "no answer yet"
        assert early or vote.vote is expected.get(state, Vote.SILENT)
        assert vote.reason or vote.vote is not Vote.SILENT


@pytest.mark.heavy
@pytest.mark.parametrize(("states", "error", "retry_after"), VERDICTS)
def test_taken_and_no_quorum_are_told_apart(states, error, retry_after):
    """Q answers and no majority: taken, until enough keys end; fewer answers: no quorum; every vote shown."""

    async def main() -> None:
        async with world(len(states)) as w:
            prepare(w, states)
            for index in range(len(states)):
                if states[index] in "tp":
                    w.occupy("a", 100.0 * (index + 1) if states[index] == "t" else None, index)
            await asyncio.sleep(0.01)
            end, _ = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
            if error is None:
                assert end.error is None
                return
            assert type(end.error) is error
            assert isinstance(end.error, LockError)
            check_votes(states, end.error)
            assert [vote.node for vote in end.error.votes] == [node.name for node in w.nodes]
            if isinstance(end.error, LockTakenError):
                # A silent node takes all the time of a single try, so that none is left to ask for PTTLs.
                unasked = "f" in states and end.error.retry_after is None
                assert unasked or end.error.retry_after == pytest.approx(retry_after, abs=0.2)
            await asyncio.sleep(ROUND_TRIP)
            assert all(keys == () for keys, state in zip(w.keys, states, strict=True) if state == "-")

    virtual(main)()


@virtual
async def test_votes_of_a_holder_that_uses_this_package():
    """The other process's remaining time is what `retry_after` says, and shrinks from try to try."""
    async with world() as w, w.process() as other:
        await_release = await other.lock("a", ttl=20, extension=PLAIN).acquire()
        first, _ = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
        await asyncio.sleep(5)
        second, _ = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(first.error, LockTakenError)
        assert isinstance(second.error, LockTakenError)
        assert first.error.retry_after == pytest.approx(20, abs=0.01)
        assert second.error.retry_after == pytest.approx(15, abs=0.02)
        await await_release.release()


@virtual
async def test_every_node_that_refused_is_heard_how_long_its_key_stays():
    """The last one, too, though the others have told that long before: a plain refusal says no time (R13)."""
    async with world(fencing=False) as w:
        w.occupy("a", 20.0, 0)
        w.occupy("a", 10.0, 1)
        w.nodes[1].latency = 2 * STRAGGLERS
        end, _ = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, LockTakenError)
        assert end.error.retry_after == pytest.approx(10, abs=0.1)


@virtual
async def test_a_majority_that_grants_too_late_is_undone():
    """A win with too little validity left is a failure: nothing is held, and nothing stays behind."""
    async with world(latency=0.3, node_timeout=1, ttl=1.1, connect_timeout=2) as w:
        end, _ = await timed(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        assert "too late" in str(end.error)
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


# -- deadlock with oneself ---------------------------------------------------------------------------


@virtual
async def test_waiting_for_ones_own_lock_is_an_error_at_once():
    """A task that would wait inside its own block for the same name gets WouldDeadlockError, without I/O."""
    async with world() as w, w.manager.lock("a"):
        before = [len(node.executed) for node in w.nodes]
        for lock in (
            w.manager.lock("a"),
            w.manager.lock("a", blocking_timeout=5),
            w.manager.lock("0", "a", "b"),
        ):
            end, seconds = await timed_here(lock.acquire)
            assert isinstance(end, WouldDeadlockError)
            assert end.names == lock.names
            assert seconds == 0
        assert [len(node.executed) for node in w.nodes] == before
        async with w.manager.lock("0", "b", blocking_timeout=0):  # the gates were given back
            pass


async def timed_here(run: Callable[[], Awaitable[object]]) -> tuple[BaseException | None, float]:
    """Run something in the current task; return its error and how many seconds it took."""
    began = sim().time()
    end = await ending(run)
    return end.error, end.at - began


@virtual
async def test_a_single_try_of_ones_own_lock_is_no_deadlock():
    """It does not wait, so it is told that the lock is taken."""
    async with world() as w, w.manager.lock("a"):
        error, seconds = await timed_here(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(error, LockTakenError)
        assert seconds == 0
        assert await w.manager.lock("a").try_acquire() is None


@virtual
async def test_another_task_may_wait_for_the_lock():
    """A child task of the body is not the body: it waits."""
    async with world() as w:
        async with w.manager.lock("a"):
            child = in_task(w.manager.lock("a").acquire)
            await asyncio.sleep(5)
            assert not child.done()
        assert (await child).error is None


@virtual
async def test_a_lost_or_released_lock_is_no_deadlock():
    """Inside the block, once the lease is over, the task may wait for the name again."""
    async with world() as w:
        async with w.manager.lock("a") as lease:
            await lease.release()
            async with w.manager.lock("a"):
                pass
        with pytest.raises(LockLostError):
            await lost_and_again(w)


async def lost_and_again(w: World) -> None:
    """Lose a lock, and lock its name again inside the block."""
    async with w.manager.lock("a", extension=PLAIN, on_lost="raise") as lease:
        await until(deadline(lease) + 0.01)
        async with w.manager.lock("a", blocking_timeout=5) as again:
            assert again.held


@virtual
async def test_a_lease_without_a_block_is_no_deadlock():
    """A lease from acquire() may be released by any task, so waiting for it is legal."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        sim().call_later(1, lambda: releases.append(asyncio.ensure_future(lease.release())))
        releases: list[asyncio.Future[object]] = []
        error, seconds = await timed_here(w.manager.lock("a", blocking_timeout=5).acquire)
        assert error is None
        assert seconds == pytest.approx(1, abs=YIELD + 0.01)
        await releases[0]


# -- what lives under the key ------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "fails"), [((0, 1), True), ((0, 1, 2), True), ((0,), False)])
def test_a_wrong_type_fails_at_once_if_it_costs_the_quorum(wrong, fails):
    """Something that is no lock under the name, on a majority, is no matter of waiting; on one node it is."""

    async def main() -> None:
        async with world() as w:
            for index in wrong:
                w.nodes[index].set(b"redlock:a", None, 1000.0)
            end, seconds = await timed(w.manager.lock("a", blocking_timeout=5).acquire)
            if not fails:
                assert end.error is None
                return
            assert isinstance(end.error, ConfigurationError)
            assert seconds < 0.1

    virtual(main)()


@virtual
async def test_a_wrong_type_without_a_blocking_timeout():
    """Also an acquire that would wait for ever fails at once."""
    async with world() as w:
        for node in w.nodes:
            node.set(b"redlock:a", None)
        end, seconds = await timed(w.manager.lock("a").acquire)
        assert isinstance(end.error, ConfigurationError)
        assert seconds < 0.1


@virtual
async def test_a_key_without_expiry_is_polled():
    """A stranger's key without a ttl is an ordinary holder: it is waited for by back-off."""
    async with world() as w:
        w.occupy("a", None)
        task = in_task(w.manager.lock("a").acquire)
        await asyncio.sleep(30)
        assert not task.done()
        w.vacate("a")
        await asyncio.sleep(0.5 + 3 * ROUND_TRIP)
        assert task.done()
        assert (await task).error is None
        assert count(w.nodes[0], "acquire") > 30


# -- when it is tried again --------------------------------------------------------------------------


async def waits_of_two(w: World) -> list[list[float]]:
    """Let two processes wait for another one for a minute; return their waits between tries."""
    refusals, others = Refusals(), Refusals()
    async with w.process(hooks=[refusals]) as one, w.process(hooks=[others]) as other:
        w.occupy("a", 1000.0, value=ANOTHER)
        await asyncio.gather(
            in_task(one.lock("a", blocking_timeout=60).acquire),
            in_task(other.lock("a", blocking_timeout=60).acquire),
        )
    common = {round(time, 3) for time in refusals.times} & {round(time, 3) for time in others.times}
    assert len(common) < len(refusals.times) / 10, "they march in step"
    both = [
        [after - before for before, after in itertools.pairwise(times[:-1])]
        for times in (refusals.times, others.times)
    ]
    for waits in both:
        assert max(waits) <= 0.5 + 2 * ROUND_TRIP + EPSILON
        assert len({round(wait, 4) for wait in waits}) > len(waits) * 0.7
    return both


@pytest.mark.heavy
@virtual
async def test_waits_are_jittered_and_capped(monkeypatch):
    """Where nothing tells of releases, waits between tries grow to the cap and not beyond, from nothing."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)
    async with world() as w:
        for waits in await waits_of_two(w):
            assert min(waits) < 0.1
            assert max(waits) > 0.4
            assert sum(waits[-50:]) / 50 == pytest.approx(0.25, abs=0.1)


@pytest.mark.heavy
@virtual
async def test_a_waiter_that_is_told_of_releases_polls_seldom():
    """Where releases are told of, every wait from the first one is between half the cap and the cap."""
    async with world() as w:
        for waits in await waits_of_two(w):
            assert min(waits) >= 0.25
            assert sum(waits) / len(waits) == pytest.approx(0.375, abs=0.05)


@pytest.mark.parametrize("silent", ["f----", "ff---", "fff--"])
def test_a_waiter_that_may_miss_releases_polls_as_ever(silent):
    """To poll seldom takes notices from a majority of the nodes: from three of five."""

    async def main() -> None:
        refusals = Refusals()
        async with world(5, hooks=[refusals]) as w:
            w.occupy("a", 1000.0, value=ANOTHER)
            prepare(w, silent)
            await asyncio.sleep(3)  # until it is known that they are mute
            await in_task(w.manager.lock("a", blocking_timeout=20).acquire)
        waits = [after - before for before, after in itertools.pairwise(refusals.times[:-1])]
        assert (min(waits) >= 0.25) is (silent != "fff--")

    virtual(main)()


@pytest.mark.parametrize("seed", range(10))
def test_the_expiry_of_the_keys_ends_the_wait(seed):
    """With long back-offs a waiter still comes within a first back-off of the moment the keys expire."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=seed, retry=RetryPolicy(base=0.02, cap=60)) as other:
            w.occupy("a", 7.0)
            end, seconds = await timed(other.lock("a").acquire)
            assert end.error is None
            assert 7.0 <= seconds <= 7.05

    virtual(main)()


@pytest.mark.heavy
@virtual
async def test_back_off_ends_when_the_lock_is_free_earlier(monkeypatch):
    """A lock that its holder releases early is found free by the next try, at most one capped wait later."""
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)  # else they are told
    async with world() as w, w.process() as other:
        for _ in range(20):
            holder = await other.lock("a").acquire()
            task = in_task(w.manager.lock("a").acquire)
            await asyncio.sleep(3)
            released = sim().time()
            await holder.release()
            end = await task
            assert end.error is None
            assert end.at - released <= 0.5 + 4 * ROUND_TRIP


@virtual
async def test_every_try_has_an_owner_of_its_own():
    """No owner value is used for two attempts, and every attempt is released on every node."""
    async with world() as w:
        w.occupy("a", 1000.0)
        await timed(w.manager.lock("a", blocking_timeout=10).acquire)
        for node in w.nodes:
            owners = [one.owner for one in sent(node) if one.kind == "acquire"]
            assert len(owners) > 10
            assert len(set(owners)) == len(owners)
            assert [one.owner for one in sent(node) if one.kind == "release"] == owners


@pytest.mark.heavy
@virtual
async def test_two_processes_share_a_lock_fairly_enough():
    """Tasks of two processes that contend without pause both get the lock, never both at once."""
    async with world() as w, w.process() as other:
        inside = 0
        wins = [0, 0]

        async def work(index: int, manager: object) -> None:
            nonlocal inside
            while sim().time() < 1060:
                async with manager.lock("a"):  # type: ignore[attr-defined]
                    inside += 1
                    assert inside == 1
                    wins[index] += 1
                    await asyncio.sleep(0.05)
                    inside -= 1

        ends = await asyncio.gather(
            *(
                in_task(lambda i=i, m=m: work(i, m))
                for i, m in enumerate((w.manager, other))
                for _ in range(3)
            )
        )
        assert [end.error for end in ends] == [None] * 6
        assert min(wins) > 0


@virtual
async def test_leases_are_kept_apart_by_name():
    """A held name says nothing about another one, nor about a name that it begins with."""
    async with world() as w:
        leases: list[Lease] = [await w.manager.lock(name).acquire() for name in ("a", "aa", "a:b", "b")]
        assert all(lease.held for lease in leases)
        for lease in leases:
            await lease.release()
