"""The manager: its start, its end, its loop and process, what it tells (R18, A4)."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import subprocess
import sys
import traceback
import weakref
from dataclasses import FrozenInstanceError, fields
from typing import Any, Final

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    NodeState,
    QuorumUnavailableError,
    Vote,
)
from aioredlock_ng._node import fork
from aioredlock_ng.events import Acquired, Extended, GaveUp, LoopStalled, Lost, NodeChanged, Refused, Released
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    TIMEOUT,
    TTL,
    World,
    count,
    deadline,
    ending,
    in_task,
    is_ours_to_stay,
    locks,
    make,
    sent,
    sim,
    turns,
    until,
    virtual,
    world,
)

ROUND_TRIP = 2 * LATENCY
EPSILON = 1e-6


def masters(number: int = 3) -> list[MemoryNode]:
    """Return nodes that are up."""
    return [MemoryNode(latency=LATENCY) for _ in range(number)]


def background() -> set[str]:
    """Return the names of the package's tasks."""
    return {task.get_name() for task in asyncio.all_tasks() if "aioredlock_ng" in task.get_name()}


def test_a_manager_that_was_never_used_leaves_at_once():
    """It is no work for the collector: nothing that it keeps leads back to it."""
    gc.collect()
    gc.disable()
    try:
        manager = LockManager(masters())
        manager.lock("a")
        gone = weakref.ref(manager)
        del manager
        assert gone() is None
    finally:
        gc.enable()


# -- start -------------------------------------------------------------------------------------------


def test_a_manager_at_module_level():
    """Made without a loop, it binds and connects at its first use, from several tasks at once."""
    nodes = masters()
    manager = LockManager(nodes)
    assert "not started" in repr(manager)
    now = manager.statistics()
    assert (now.held, now.waiting, now.acquired, now.leases) == (0, 0, 0, ())

    async def main() -> None:
        async def use(name: str) -> None:
            async with manager.lock(name) as lease:
                assert lease.held

        await asyncio.gather(*(use(f"lock-{number}") for number in range(10)))
        assert len([name for name in background() if "watchdog" in name]) == 1
        await manager.aclose()
        assert background() == set()

    SimLoop.run(main())


@virtual
async def test_start_and_aclose_by_hand():
    """start() is idempotent, and concurrent calls start one manager."""
    manager = make(masters())
    await asyncio.gather(manager.start(), manager.start())
    await manager.start()
    assert len([name for name in background() if "supervisor" in name]) == 1
    assert {node.state for node in manager.statistics().nodes} == {NodeState.UP}
    await manager.aclose()


@pytest.mark.parametrize("state", ["dead", "frozen"])
def test_a_start_with_no_node_up(state):
    """No node needs to be up: start() returns in time, acquires fail as unavailable, and then recover."""

    async def main() -> None:
        nodes = masters()
        for node in nodes:
            (node.crash if state == "dead" else node.freeze)()
        began = sim().time()
        async with make(nodes, connect_timeout=1) as manager:
            assert sim().time() - began <= 1 + EPSILON
            end = await in_task(manager.lock("a", blocking_timeout=0.2).acquire)
            assert isinstance(end.error, QuorumUnavailableError)
            assert all(vote.vote is Vote.SILENT and vote.reason for vote in end.error.votes)
            for node in nodes:
                (node.restart if state == "dead" else node.thaw)()
            began = sim().time()
            async with manager.lock("a"):
                assert sim().time() - began < 1.5

    virtual(main)()


@virtual
async def test_a_start_waits_for_a_majority_only():
    """One node that does not answer holds a start up by no more than one node_timeout: the others need a
    round trip to connect, and on fresh nodes two to be greeted: one to look, and one to write.
    """
    nodes = masters()
    nodes[0].freeze()
    began = sim().time()
    async with make(nodes) as manager:
        assert sim().time() - began <= 3 * ROUND_TRIP + TIMEOUT + EPSILON
        async with manager.lock("a", blocking_timeout=0):
            pass


@virtual
async def test_a_start_waits_a_moment_for_the_others():
    """A node that connects less than a node_timeout after a majority is up when start() returns."""
    nodes = masters()
    nodes[2].latency = TIMEOUT / 8
    async with make(nodes) as manager:
        assert {node.state for node in manager.statistics().nodes} == {NodeState.UP}


@pytest.mark.parametrize("turn", range(8))
def test_a_cancelled_start_leaves_nothing(turn):
    """Cancelled while it waits for its nodes, `async with manager` leaves no task behind."""

    async def main() -> None:
        nodes = masters()
        for node in nodes:
            node.freeze()
        manager = make(nodes)

        async def use() -> None:
            async with manager:
                pytest.fail("entered")

        task = in_task(use)
        await turns(turn + 1)
        await asyncio.sleep(0.1 if turn > 3 else 0)
        task.cancel()
        end = await task
        assert isinstance(end.error, asyncio.CancelledError)
        await asyncio.sleep(1)
        assert background() == set()

    virtual(main)()


# -- two nodes that are one server -------------------------------------------------------------------


@virtual
async def test_one_server_given_twice_is_refused_at_once():
    """The same address twice in the list is an error that names it, before anything is started."""
    node = MemoryNode("twice")
    with pytest.raises(ConfigurationError, match="twice"):
        make([MemoryNode(), node, node])


@virtual
async def test_two_addresses_of_one_server_are_found_at_the_start():
    """Two nodes with one run_id are refused by start() with both names, and no task is left."""
    nodes = [MemoryNode("left"), MemoryNode("right"), MemoryNode("other")]
    nodes[1]._server.run_id = nodes[0]._server.run_id
    manager = make(nodes)
    with pytest.raises(ConfigurationError, match=r"left.*right"):
        await manager.start()
    with pytest.raises(ConfigurationError, match=r"left.*right"):
        await manager.lock("a").acquire()
    assert [count(node, "acquire") for node in nodes] == [0] * 3
    await manager.aclose()
    with pytest.raises(ConfigurationError, match=r"left.*right"):
        async with make(nodes):
            pytest.fail("entered")
    await asyncio.sleep(0.1)
    assert background() == set()


@virtual
async def test_two_addresses_of_one_server_that_are_found_later():
    """A second node that turns out to be the first one is an error of every acquire from then on."""
    nodes = [MemoryNode("left"), MemoryNode("right"), MemoryNode("other")]
    nodes[1].crash()
    async with make(nodes) as manager:
        async with manager.lock("a"):
            pass
        nodes[1].restart()
        nodes[1]._server.run_id = nodes[0]._server.run_id
        await asyncio.sleep(1)
        for lock in (manager.lock("a"), manager.lock("b", blocking_timeout=0)):
            with pytest.raises(ConfigurationError, match=r"left.*right"):
                await lock.acquire()
        with pytest.raises(ConfigurationError, match=r"left.*right"):
            await manager.lock("a").try_acquire()


# -- aclose ------------------------------------------------------------------------------------------


@virtual
async def test_aclose_releases_every_lease():
    """Leases in blocks and from acquire() are released on every node, and all tasks end."""
    nodes = masters()
    manager = make(nodes)
    await manager.start()
    free = [await manager.lock(f"free-{number}").acquire() for number in range(5)]
    blocks = [in_task(lambda name=f"block-{number}": hold(manager, name)) for number in range(5)]
    await asyncio.sleep(1)
    assert [len(locks(node)) for node in nodes] == [10] * 3
    await manager.aclose()
    assert [locks(node) for node in nodes] == [()] * 3
    assert background() == set()
    for end in await asyncio.gather(*blocks):
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.MANAGER_CLOSED
        assert end.cancelling == 0
    for lease in free:
        assert not lease.held
        with pytest.raises(LockLostError):
            lease.check()
        await lease.release()
    assert "closed" in repr(manager)


async def hold(manager: LockManager, name: str, seconds: float = 1000.0, **options: Any) -> None:
    """Hold a lock."""
    async with manager.lock(name, **options):
        await asyncio.sleep(seconds)


@virtual
async def test_aclose_is_idempotent_and_concurrent():
    """Called again, before a start, or by many tasks at once, it ends once and quietly."""
    manager = make(masters())
    await manager.aclose()
    await manager.aclose()
    with pytest.raises(ManagerClosedError):
        await manager.start()
    async with world() as w:
        body = in_task(lambda: hold(w.manager, "a"))
        await asyncio.sleep(1)
        ends = await asyncio.gather(*(in_task(w.manager.aclose) for _ in range(5)))
        assert [end.error for end in ends] == [None] * 5
        assert isinstance((await body).error, LockLostError)
        assert w.keys == [()] * 3
        assert background() == set()
        await w.manager.aclose()


@virtual
async def test_aclose_refuses_new_acquires():
    """From its first moment, also while it waits for bodies, and ever after."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w, 3.0))
        await asyncio.sleep(1)
        closing = in_task(w.manager.aclose)
        for _ in range(3):
            await turns(2)
            for lock in (w.manager.lock("a"), w.manager.lock("b"), w.manager.lock("c", blocking_timeout=0)):
                end = await in_task(lock.acquire)
                assert isinstance(end.error, ManagerClosedError)
                end = await in_task(lock.try_acquire)
                assert isinstance(end.error, ManagerClosedError)
            assert not closing.done()
            await asyncio.sleep(0.1)
        await closing
        await body
        with pytest.raises(ManagerClosedError):
            await w.manager.start()
        with pytest.raises(ManagerClosedError):
            await w.manager.inspect("a")
        assert {one.key for one in sent(w.nodes[0]) if one.kind == "acquire"} == {b"redlock:a"}


async def hold_stubbornly(w: World, seconds: float, **options: Any) -> None:
    """Hold a lock, and take so long to clean up."""
    async with w.manager.lock("a", **options):
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(seconds)


@virtual
async def test_aclose_wakes_waiters():
    """Waiters in the queue, between two tries and in the middle of one get ManagerClosedError."""
    async with world() as w:
        w.occupy("taken", 1000.0)
        lease = await w.manager.lock("own").acquire()
        waiters = [in_task(w.manager.lock("own").acquire) for _ in range(3)]
        waiters += [in_task(w.manager.lock("taken").acquire) for _ in range(3)]
        await asyncio.sleep(2)
        for node in w.nodes[:2]:
            node.latency = 0.05
        waiters.append(in_task(w.manager.lock("under way").acquire))
        await asyncio.sleep(0.04)
        began = sim().time()
        await w.manager.aclose()
        ends = await asyncio.gather(*waiters)
        assert [type(end.error) for end in ends] == [ManagerClosedError] * 7
        assert all(end.at - began <= TIMEOUT + EPSILON for end in ends)
        assert not lease.held
        await asyncio.sleep(1)
        assert w.keys == [(b"redlock:taken",)] * 3


@pytest.mark.parametrize("turn", range(12))
def test_aclose_in_any_turn_of_an_acquire(turn):
    """Closed in whatever turn of an acquire: a lost lease or ManagerClosedError, and no key is left."""

    async def main() -> None:
        async with world(latency=0.0) as w:
            tasks = [in_task(lambda n=number: hold(w.manager, f"lock-{n}", 0.1)) for number in range(3)]
            await turns(turn)
            await w.manager.aclose()
            for end in await asyncio.gather(*tasks):
                assert isinstance(end.error, (ManagerClosedError, LockLostError))
                assert end.cancelling == 0
            await asyncio.sleep(0.1)
            assert w.keys == [()] * 3
            assert background() == set()

    virtual(main)()


@virtual
async def test_a_start_that_is_closed_meanwhile():
    """start() and acquires that wait for the nodes get ManagerClosedError when the manager is closed."""
    nodes = masters()
    for node in nodes:
        node.freeze()
    manager = make(nodes)
    tasks = [
        in_task(manager.start),
        in_task(manager.lock("a").acquire),
        in_task(manager.lock("b").try_acquire),
    ]
    await asyncio.sleep(0.05)
    await manager.aclose()
    assert [type((await task).error) for task in tasks] == [ManagerClosedError] * 3
    assert background() == set()


@virtual
async def test_aclose_waits_for_bodies():
    """A body that cleans up is waited for, under the keys, and ends inside the lock."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w, 3.0))
        await asyncio.sleep(1)
        began = sim().time()
        closing = in_task(w.manager.aclose)
        await asyncio.sleep(2.9)
        assert None not in w.holders("a")
        await closing
        assert 3 <= sim().time() - began < 3.1
        end = await body
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.MANAGER_CLOSED


@virtual
async def test_aclose_hears_of_the_releases_of_its_bodies():
    """When aclose() returns, what its bodies released on their way out has been acknowledged."""
    async with world(latency=0.02) as w:
        bodies = [in_task(lambda n=number: hold(w.manager, f"lock-{n}")) for number in range(3)]
        await asyncio.sleep(1)
        await w.manager.aclose()
        assert w.keys == [()] * 3
        assert [node.owed for node in w.manager.statistics().nodes] == [0] * 3
        await asyncio.gather(*bodies)


@pytest.mark.parametrize("on_lost", ["cancel", "raise"])
def test_aclose_waits_at_most_until_the_deadline(on_lost):
    """A body that does not end is left behind at its deadline: not extended any more, and released."""

    async def main() -> None:
        async with world() as w:
            leases: list[Lease] = []

            async def stubborn() -> None:
                async with w.manager.lock("a", on_lost=on_lost) as lease:
                    leases.append(lease)
                    try:
                        await asyncio.sleep(60)
                    finally:
                        await asyncio.sleep(60)

            body = in_task(stubborn)
            await asyncio.sleep(5)
            due = deadline(leases[0])
            extended = count(w.nodes[0], "extend")
            await w.manager.aclose()
            assert due <= sim().time() <= due + TIMEOUT
            assert w.keys == [()] * 3
            assert count(w.nodes[0], "extend") == extended
            assert not leases[0].held
            assert background() == set()
            end = await body
            assert isinstance(end.error, LockLostError)
            assert end.error.reason is LossReason.MANAGER_CLOSED

    virtual(main)()


@virtual
async def test_aclose_with_silent_nodes():
    """Nodes that do not answer hold the end up by two node_timeouts: for releases, and for connections."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        for node in w.nodes:
            node.freeze()
        began = sim().time()
        await w.manager.aclose()
        assert sim().time() - began == pytest.approx(2 * TIMEOUT)
        assert not lease.held
        for node in w.nodes:
            node.thaw()
        assert w.keys == [()] * 3, "a close in order still delivers what was written"


@virtual
async def test_aclose_from_inside_the_own_body():
    """A body may close its manager: it does not wait for itself, and is not cancelled by itself."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a") as lease:
                other = in_task(lambda: hold(w.manager, "b"))
                await asyncio.sleep(1)
                began = sim().time()
                await w.manager.aclose()
                assert sim().time() - began < TIMEOUT
                assert not lease.held
                with pytest.raises(LockLostError):
                    lease.check()
                assert isinstance((await other).error, LockLostError)
                await asyncio.sleep(TTL)
                assert w.keys == [()] * 3
                undisturbed.append(True)

        undisturbed: list[bool] = []
        end = await in_task(body)
        assert undisturbed
        assert end.error is None or isinstance(end.error, LockLostError)
        assert end.cancelling == 0
        assert background() == set()


@virtual
async def test_a_cancelled_aclose_still_closes():
    """A caller that stops waiting for aclose() finds the leases released and the tasks ended all the same."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w, 3.0))
        await asyncio.sleep(1)
        closing = in_task(w.manager.aclose)
        await asyncio.sleep(0.5)
        closing.cancel()
        end = await closing
        assert isinstance(end.error, asyncio.CancelledError)
        await body
        await asyncio.sleep(TTL)
        assert w.keys == [()] * 3
        assert background() == set()


@virtual
async def test_the_end_of_the_block_closes():
    """`async with manager` closes at its end, also when its body raises; the exception passes."""
    nodes = masters()
    mine = ValueError("mine")
    manager = make(nodes)
    leases = []

    async def use() -> None:
        async with manager:
            leases.append(await manager.lock("a").acquire())
            raise mine

    end = await ending(use)
    assert end.error is mine
    assert [locks(node) for node in nodes] == [()] * 3
    assert background() == set()


# -- the loop and the process ------------------------------------------------------------------------


def test_another_loop_is_refused():
    """Every use from a second loop is a RuntimeError that says so, and does not disturb the first."""
    manager = LockManager(masters())
    with asyncio.Runner(loop_factory=SimLoop) as first, asyncio.Runner(loop_factory=SimLoop) as second:
        lease = first.run(manager.lock("a").acquire())
        for use in (
            manager.start,
            manager.lock("a").acquire,
            manager.lock("a").try_acquire,
            manager.aclose,
            lambda: manager.inspect("a"),
            lambda: manager.force_release("a"),
        ):
            with pytest.raises(RuntimeError, match="another event loop"):
                second.run(call(use))
        assert lease.held
        first.run(call(lease.release))
        first.run(manager.aclose())


async def call(function: Any) -> Any:
    """Call a function in the running loop."""
    return await function()


def test_a_node_that_cannot_be_made_anew_belongs_to_one_loop():
    """A ready node object may have been bound once only; the error says what to give instead."""
    manager = LockManager([MemoryNode().link()])
    SimLoop.run(hold(manager, "a", 1))
    for use in (manager.start, manager.lock("a").acquire, manager.aclose):
        with pytest.raises(RuntimeError, match=r"belongs to another event loop.* one LockManager per loop"):
            SimLoop.run(call(use))


def test_a_forked_child_does_not_follow_to_another_loop():
    """Not even when the parent's loop had been closed: one manager per process."""
    manager = LockManager(masters())
    SimLoop.run(hold(manager, "a", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork, "_generation", fork.generation() + 1)
        for use in (manager.start, manager.lock("a").acquire):
            with pytest.raises(RuntimeError, match="fork"):
                SimLoop.run(call(use))


@virtual
async def test_another_process_is_refused():
    """After a fork the child gets RuntimeError that says what to do, for every entry."""
    async with world() as w:
        before = [len(node.executed) for node in w.nodes]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fork, "_generation", fork.generation() + 1)
            patch.setattr(asyncio, "_get_running_loop", lambda: None)  # as in a forked child
            for use in (w.manager.start, w.manager.lock("a").acquire, lambda: w.manager.inspect("a")):
                with pytest.raises(RuntimeError, match="fork"):
                    await use()
        assert [len(node.executed) for node in w.nodes] == before
        async with w.manager.lock("a"):
            pass


CHILD_GOES_ON: Final = """
import asyncio, os, sys
from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode

async def use():
    async with manager.lock("a", blocking_timeout=1):
        return "locked"

manager = LockManager([MemoryNode() for _ in range(3)])
with asyncio.Runner() as runner:
    assert runner.run(use()) == "locked"
    if not (child := os.fork()):
        try:
            runner.run(use())
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(runner.run(use()), flush=True)
    runner.run(manager.aclose())
"""


def test_a_forked_child_that_goes_on_with_its_parents_loop_is_refused():
    """A loop that does not run at the fork can be run in the child: there, too, the error says what to do."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD_GOES_ON],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "RuntimeError: this LockManager was started before a fork: make one per process, after the fork",
        "locked",
    ], run.stderr


@pytest.mark.parametrize("extension", [None, PLAIN])
def test_a_loop_that_is_torn_down_with_locks_held(extension):
    """asyncio.run ends and cancels everything: blocks, leases, waiters; no key is left, and no warning."""
    nodes = masters()
    manager = LockManager(nodes)
    leases: list[Lease] = []

    async def main() -> None:
        for number in range(3):
            asyncio.create_task(hold(manager, f"block-{number}", extension=extension))  # noqa: RUF006
        leases.append(await manager.lock("free").acquire())
        asyncio.create_task(hold(manager, "free"))  # noqa: RUF006 (waits in the queue)
        asyncio.create_task(clean_up_slowly())  # noqa: RUF006
        await asyncio.sleep(1)
        assert [len(locks(node)) for node in nodes] == [5] * 3

    async def clean_up_slowly() -> None:
        async with manager.lock("slow"):
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.5)

    SimLoop.run(main())
    gc.collect()
    assert [[key for key in node._server.data if not is_ours_to_stay(key)] for node in nodes] == [[]] * 3
    assert "closed" in repr(manager)
    assert not leases[0].held


@virtual
async def test_a_second_call_waits_for_the_nodes_as_the_first_did():
    """A call that has waited in vain for the connections says nothing of them to the next one."""
    nodes = masters()
    for node in nodes:
        node.freeze()
    manager = make(nodes)
    began = sim().time()
    with pytest.raises(QuorumUnavailableError, match="not connected yet"):
        await manager.lock("a").try_acquire()
    assert sim().time() == pytest.approx(began + TIMEOUT)
    for node in nodes:
        sim().call_later(TIMEOUT / 2, node.thaw)
    lease = await manager.lock("a").try_acquire()
    assert lease is not None
    await lease.release()
    await manager.aclose()


def test_a_loop_that_is_torn_down_while_it_starts():
    """Ended in the middle of the first connects, it leaves no warning either."""
    nodes = masters()
    for node in nodes:
        node.freeze()
    manager = LockManager(nodes)

    async def main() -> None:
        asyncio.create_task(hold(manager, "a"))  # noqa: RUF006
        await asyncio.sleep(0.5)

    SimLoop.run(main())
    gc.collect()
    assert [[key for key in node._server.data if not is_ours_to_stay(key)] for node in nodes] == [[]] * 3


# -- hooks -------------------------------------------------------------------------------------------


class Everything:
    """A hook that collects every event."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return self.events.append
        raise AttributeError(name)

    def of(self, kind: type) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if type(event) is kind]


@virtual
async def test_hooks_hear_of_everything():
    """Each event comes once, in order, with its names, label and figures."""
    hook = Everything()
    async with world(hooks=[hook]) as w:
        assert [(event.state, event.reason) for event in hook.of(NodeChanged)] == [(NodeState.UP, "")] * 3
        assert [event.node for event in hook.of(NodeChanged)] == [node.name for node in w.nodes]
        hook.events.clear()

        w.occupy("a", 0.5)
        lease = await w.manager.lock("a", label="template").acquire()
        refused, acquired = hook.of(Refused), hook.of(Acquired)
        assert refused
        assert all(e.names == ("a",) and e.label == "template" and e.taken for e in refused)
        assert [vote.vote for vote in refused[0].votes] == [Vote.REFUSED] * 3
        assert len(acquired) == 1
        assert acquired[0].names == ("a",)
        assert acquired[0].label == "template"
        assert acquired[0].waited == pytest.approx(0.5, abs=0.1)
        assert acquired[0].attempts == len(refused) + 1
        assert {vote.vote for vote in acquired[0].votes} >= {Vote.GRANTED}

        await asyncio.sleep(TTL / 3 + 0.1)
        (extended,) = hook.of(Extended)
        assert (extended.names, extended.label, extended.extensions) == (("a",), "template", 1)
        await lease.release()
        (released,) = hook.of(Released)
        assert (released.names, released.label) == (("a",), "template")
        assert released.held_for == pytest.approx(TTL / 3 + 0.1, abs=0.01)
        assert not hook.of(Lost)

        hook.events.clear()
        with pytest.raises(LockLostError):
            await hold(w.manager, "b", extension=PLAIN, label="other")
        kinds = [type(event) for event in hook.events]
        assert kinds == [Acquired, Lost, Released]
        lost = hook.of(Lost)[0]
        assert (lost.names, lost.label, lost.reason) == (("b",), "other", LossReason.EXPIRED)
        assert lost.held_for == pytest.approx(0.94 * TTL, abs=0.01)


@virtual
async def test_hooks_hear_of_nodes_and_stalls():
    """Nodes that go down, tries that find no quorum, nodes that come back, and a loop that stood still."""
    hook = Everything()
    async with world(hooks=[hook]) as w:
        hook.events.clear()
        for node in w.nodes[:2]:
            node.crash()
        await asyncio.sleep(0.1)
        down = hook.of(NodeChanged)
        assert {(event.node, event.state) for event in down} == {
            (node.name, NodeState.DOWN) for node in w.nodes[:2]
        }
        assert all(event.reason for event in down)
        end = await in_task(w.manager.lock("c", blocking_timeout=0).acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        assert [event.taken for event in hook.of(Refused)] == [False]
        for node in w.nodes[:2]:
            node.restart()
        await asyncio.sleep(1)
        assert [event.state for event in hook.of(NodeChanged)].count(NodeState.UP) == 2
        async with w.manager.lock("d"):
            await asyncio.sleep(1)
            sim().advance(3)
            await asyncio.sleep(1)
        assert [round(event.seconds) for event in hook.of(LoopStalled)] == [3]
        for event in hook.events:
            if isinstance(event, Acquired | Released):
                continue  # made for each cycle: frozen, they would take too long
            with pytest.raises(FrozenInstanceError):
                setattr(event, fields(event)[0].name, None)


@virtual
async def test_a_raising_hook_is_logged_once_and_affects_nothing():
    """Hooks that raise at every event change no lock, and other hooks still hear; one log line each."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("on_"):
                return self.fail
            raise AttributeError(name)

        def fail(self, event: object) -> None:
            raise RuntimeError(f"broken by {type(event).__name__}")

    hook = Everything()

    async def use() -> None:
        async with world(hooks=[Broken(), hook, Broken()]) as w:
            for name in ("a", "b"):
                async with w.manager.lock(name):
                    await asyncio.sleep(TTL)
            with pytest.raises(LockLostError):
                await hold(w.manager, "c", extension=PLAIN)
            w.occupy("d", 1000.0)
            assert await w.manager.lock("d").try_acquire() is None

    with captured() as log:
        end = await in_task(use)
    assert end.error is None
    assert {type(event) for event in hook.events} == {
        Acquired,
        Extended,
        GaveUp,
        Lost,
        NodeChanged,
        Refused,
        Released,
    }
    assert log.getvalue().count("hook Broken failed") == 2
    assert background() == set()


@virtual
async def test_a_hook_needs_only_the_methods_it_wants():
    """An object with one method hears that event and no other."""

    class One:
        def __init__(self) -> None:
            self.heard: list[object] = []

        def on_released(self, event: Released) -> None:
            self.heard.append(event)

    one = One()
    async with world(hooks=[one, object()]) as w, w.manager.lock("a"):
        assert one.heard == []
    assert [type(event) for event in one.heard] == [Released]


class captured:  # noqa: N801
    """What the package logs, as text with tracebacks."""

    def __enter__(self) -> io.StringIO:
        self.text = io.StringIO()
        self.handler = logging.StreamHandler(self.text)
        self.handler.setLevel(logging.DEBUG)
        self.logger = logging.getLogger("aioredlock_ng")
        self.level = self.logger.level
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.handler)
        return self.text

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self.handler)
        self.logger.setLevel(self.level)


# -- what it tells -----------------------------------------------------------------------------------


@virtual
async def test_statistics():
    """Held, waiting, counters and nodes are as they are; the value is frozen."""
    async with world() as w:
        stranger = "taken"
        w.occupy(stranger, 1000.0)
        held = [await w.manager.lock(f"lock-{number}").acquire() for number in range(4)]
        waiting = [in_task(w.manager.lock("lock-0", blocking_timeout=50).acquire) for _ in range(3)]
        assert await w.manager.lock(stranger).try_acquire() is None
        await asyncio.sleep(1)
        now = w.manager.statistics()
        assert (now.held, now.waiting, now.acquired, now.refused) == (4, 3, 4, 1)
        assert (now.extended, now.lost, now.released) == (0, 0, 0)
        await asyncio.sleep(TTL / 3)
        assert w.manager.statistics().extended == 4
        w.vacate("lock-3")
        await asyncio.sleep(TTL / 3)
        assert w.manager.statistics().lost == 1
        for lease in held:
            await lease.release()
        await asyncio.gather(*waiting)
        now = w.manager.statistics()
        assert (now.held, now.waiting, now.acquired, now.released) == (0, 0, 7, 7)
        with pytest.raises(FrozenInstanceError):
            now.held = 1  # type: ignore[misc]
        assert [node.name for node in now.nodes] == [node.name for node in w.nodes]
        assert {node.state for node in now.nodes} == {NodeState.UP}
        assert all(node.round_trip == pytest.approx(ROUND_TRIP) for node in now.nodes)
        assert {(node.in_flight, node.owed, node.dropped) for node in now.nodes} == {(0, 0, 0)}


@virtual
async def test_statistics_of_nodes_in_trouble():
    """A dead node shows its state, the reason, and the releases that it still owes an answer to."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.nodes[0].crash()
        await asyncio.sleep(0.1)
        await lease.release()
        dead, *others = w.manager.statistics().nodes
        assert dead.state is NodeState.DOWN
        assert dead.reason
        assert dead.owed == 1
        assert [node.owed for node in others] == [0, 0]
        w.nodes[0].restart()
        await asyncio.sleep(2)
        assert w.manager.statistics().nodes[0].owed == 0
        assert w.manager.statistics().nodes[0].state is NodeState.UP


@virtual
async def test_no_repr_log_or_error_shows_an_owner_value():
    """Neither reprs, nor messages, nor tracebacks, nor the log tell a value that would let others release."""
    hook = Everything()
    texts: list[str] = []
    with captured() as log:
        async with world(hooks=[hook], holder="some host") as w, w.process() as other:
            lock = w.manager.lock("a", "b")
            async with lock as lease:
                texts += [repr(one) for one in (w.manager, lock, lease, lease.votes, w.manager.statistics())]
                for run in (other.lock("a", blocking_timeout=0).acquire, w.manager.lock("b").acquire):
                    end = await ending(run)
                    assert end.error is not None
                    texts += [repr(end.error), "".join(traceback.format_exception(end.error))]
                texts.append(repr(await other.inspect("a")))
                report = await lease.release()
                texts.append(repr(report))
            with pytest.raises(LockLostError) as caught:
                await hold(w.manager, "c", extension=PLAIN)
            texts += [repr(caught.value), "".join(traceback.format_exception(caught.value))]
            texts.append(repr(await w.manager.force_release("c")))
            texts += [repr(w.manager), repr(hook.events)]
            owners = {
                one.owner[:40].decode() for node in w.nodes for one in sent(node) if len(one.owner) > 40
            }
    text = "\n".join([*texts, log.getvalue()])
    assert len(owners) >= 3
    assert not [owner for owner in owners if owner in text]
    assert "some host" in text, "the label, though, may be seen"


@virtual
async def test_reprs_show_state():
    """What a manager, a lock and a lease are shows in their reprs, names quoted and escaped."""
    async with world() as w:
        lock = w.manager.lock("invoice:42\n", ttl=8)
        assert "'invoice:42\\n'" in repr(lock)
        assert "8s" in repr(lock)
        lease = await lock.acquire()
        await asyncio.sleep(1)
        assert repr(lease).startswith("<Lease 'invoice:42\\n' ")
        assert "valid 6.9s" in repr(lease)
        assert repr(lease).endswith("3/3>") or repr(lease).endswith("2/3>")
        assert "running, 1 held" in repr(w.manager)
        assert all(f"{node.name} up" in repr(w.manager) for node in w.nodes)
        sim().advance(20)
        assert "valid" not in repr(lease), "validity has ended"
        await lease.release()
        other = await lock.acquire()
        await other.release()
        assert "released" in repr(other)


# -- looking and administering -----------------------------------------------------------------------


@virtual
async def test_inspect():
    """Per node: held or not, by which holder, how long, whether by this manager; None without an answer."""
    async with world(5, holder="us") as w, w.process(holder="them") as other:
        free = await w.manager.inspect("a")
        assert [(one.node, one.held) for one in free] == [(node.name, False) for node in w.nodes]
        lease = await w.manager.lock("a").acquire()
        await asyncio.sleep(1)
        w.vacate("a", 1)
        w.occupy("a", None, 2)
        w.nodes[3].freeze()
        ours, gone, stranger, silent, _ = await w.manager.inspect("a")
        assert (ours.held, ours.ours, ours.holder) == (True, True, "us")
        assert ours.ttl == pytest.approx(TTL - 1, abs=0.1)
        assert (gone.held, gone.ours, gone.holder, gone.ttl) == (False, False, None, None)
        assert (stranger.held, stranger.ours, stranger.holder, stranger.ttl) == (True, False, None, None)
        assert silent.held is None
        assert silent.reason
        seen, *_ = await other.inspect("a")
        assert (seen.held, seen.ours, seen.holder) == (True, False, "us")
        w.nodes[3].thaw()
        await lease.release()


@virtual
async def test_force_release():
    """It deletes the key on every node for any holder, tells what was there, and the holder loses."""
    async with world() as w, w.process(holder="them") as other:
        lease = await other.lock("a").acquire()
        w.nodes[2].freeze()
        first, second, third = await w.manager.force_release("a")
        assert (first.held, first.holder) == (True, "them")
        assert (second.held, second.holder) == (True, "them")
        assert third.held is None
        assert third.reason
        assert w.holders("a")[:2] == [None, None]
        w.nodes[2].thaw()
        await asyncio.sleep(TTL / 3 + 0.1)
        assert not lease.held
        async with w.manager.lock("a", blocking_timeout=1):
            pass
        await lease.release()
        assert all(one.held is False for one in await w.manager.force_release("a"))


@pytest.mark.parametrize("name", ["", "x" * 1025, "{meta}", "fence:{a}"])
def test_inspect_and_force_release_check_the_name(name):
    """A name that no lock can have is a ValueError, and nothing is sent."""

    async def main() -> None:
        async with world() as w:
            for use in (w.manager.inspect, w.manager.force_release):
                with pytest.raises(ValueError, match="name"):
                    await use(name)
            assert [node.executed for node in w.nodes] == [[]] * 3

    virtual(main)()


@virtual
async def test_managers_of_different_prefixes_do_not_meet():
    """The prefix begins every key, so that two applications can use the same names."""
    async with (
        world() as w,
        w.process(prefix="other:") as other,
        w.manager.lock("a"),
        other.lock("a", blocking_timeout=0),
    ):
        assert w.keys == [(b"other:a", b"redlock:a")] * 3
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, LockTakenError)


@virtual
async def test_closing_one_manager_leaves_others_alone():
    """Two managers over the same nodes are independent: one being closed, the other goes on."""
    async with world() as w:
        async with w.process() as other:
            theirs = await other.lock("a").acquire()
            assert theirs.held
        async with w.manager.lock("a", blocking_timeout=0) as lease:
            await until(sim().time() + 2 * TTL)
            assert lease.held
